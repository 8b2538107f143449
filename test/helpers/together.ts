import { readdirSync } from 'node:fs'
import t from 'tap'

/** For all files of a process. Each test still has the timeout of .taprc. */
const TIMEOUT_MS = 300_000

const TESTS = new URL('../', import.meta.url)

/**
 * Runs the test files of these folders of test/ in this process, in sequence. Starting a process costs
 * more CPU time than most test files. `npx tap test/<folder>/<name>.test.ts` still runs one file alone.
 */
export function runTogether(...folders: string[]): void {
  t.setTimeout(TIMEOUT_MS)
  // Tests of the files wait for this one, so no test runs while a module is loading.
  t.test('the test files load', async () => {
    for (const folder of folders) {
      const names = readdirSync(new URL(`${folder}/`, TESTS)).filter((name) => name.endsWith('.test.ts'))
      for (const name of names.sort()) {
        const path = folder === '.' ? name : `${folder}/${name}`
        // The compiler takes every file that this pattern matches, so the path has no `./` in it.
        await import(`../${path.slice(0, -'.test.ts'.length)}.test.ts`)
      }
    }
  })
}
