import { readdirSync } from 'node:fs'
import t from 'tap'

const TESTS = new URL('../', import.meta.url)

/**
 * Runs these test files, and those of these folders of test/, in this process, in sequence. Starting a process costs
 * more CPU time than most test files. `npx tap test/<folder>/<name>.test.ts` still runs one file alone.
 */
export function runTogether(...places: string[]): void {
  // Tests of the files wait for this one, so no test runs while a module is loading.
  t.test('the test files load', async () => {
    for (const path of places.flatMap(testFilesAt)) {
      // The compiler takes every file that this pattern matches, so the path has no `./` in it.
      await import(`../${path.slice(0, -'.test.ts'.length)}.test.ts`)
    }
  })
}

/** The paths in test/ of a test file, or of the test files directly in a folder. `.` is test/ itself. */
export function testFilesAt(place: string): string[] {
  if (place.endsWith('.test.ts')) return [place]
  const names = readdirSync(new URL(`${place}/`, TESTS)).filter((name) => name.endsWith('.test.ts'))
  return names.sort().map((name) => (place === '.' ? name : `${place}/${name}`))
}
