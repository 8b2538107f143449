import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

/** A change of one source file. `find` must occur exactly once. */
export interface Replacement {
  /** Relative to the repository. */
  readonly file: string
  readonly find: string
  readonly put: string
}

export interface Compiled {
  /** Path of the compiled worker. */
  readonly worker: string
  remove(): void
}

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))))

/**
 * Compiles the worker and all that it imports into one file in a temporary directory, with the change made. Plain
 * JavaScript runs a third faster than what a loader makes of TypeScript, and the sources stay as they are.
 */
export async function compileWorker(replacement: Replacement | null = null): Promise<Compiled> {
  const contents = replacement === null ? '' : replaced(replacement)
  const target = mkdtempSync(join(tmpdir(), 'simulation-'))
  const remove = (): void => rmSync(target, { recursive: true, force: true })
  const worker = join(target, 'worker.mjs')
  const { metafile } = await build({
    entryPoints: [join(root, 'test/simulation/worker.ts')],
    outfile: worker,
    bundle: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    target: 'es2023',
    metafile: true,
    logLevel: 'silent',
    absWorkingDir: root,
    plugins: [
      {
        name: 'replacement',
        setup: ({ onLoad }) =>
          onLoad({ filter: /\.ts$/ }, ({ path }) =>
            relative(root, path) === replacement?.file ? { contents, loader: 'ts' } : null,
          ),
      },
    ],
  })
  if (replacement !== null && !(replacement.file in metafile.inputs)) {
    remove()
    throw new Error(`no simulated code comes from ${replacement.file}`)
  }
  symlinkSync(join(root, 'node_modules'), join(target, 'node_modules'))
  return { worker, remove }
}

/** The source file with the change made. Throws unless the text that is replaced occurs once in it. */
export function replaced({ file, find, put }: Replacement): string {
  const text = readFileSync(join(root, file), 'utf8')
  const times = text.split(find).length - 1
  if (times === 1) return text.replace(find, () => put)
  throw new Error(`the text to replace must occur once in ${file}, not ${times} times: ${find}`)
}
