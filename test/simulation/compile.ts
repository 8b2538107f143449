import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { transformSync } from 'esbuild'

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
const IMPORTED = /\bfrom '(\.[^']+\.ts)'/g

/**
 * Compiles the worker and all that it imports into a temporary directory, with the changes made. Plain JavaScript
 * runs a third faster than what a loader makes of TypeScript, and the sources stay as they are.
 */
export function compileWorker(replacements: readonly Replacement[] = []): Compiled {
  /** The JavaScript of each source file. */
  const compiled = new Map<string, string>()
  const waiting = [join(root, 'test/simulation/worker.ts')]
  const used = new Set<Replacement>()
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    if (compiled.has(file)) continue
    const path = relative(root, file)
    let text = readFileSync(file, 'utf8')
    for (const replacement of replacements) {
      if (replacement.file !== path) continue
      text = replaceIn(text, replacement)
      used.add(replacement)
    }
    for (const [, imported] of text.matchAll(IMPORTED)) waiting.push(join(dirname(file), imported!))
    compiled.set(file, transpile(text, file))
  }
  for (const replacement of replacements) {
    if (!used.has(replacement)) throw new Error(`no simulated code comes from ${replacement.file}`)
  }
  const target = mkdtempSync(join(tmpdir(), 'simulation-'))
  for (const [file, code] of compiled) {
    const out = join(target, relative(root, file).replace(/\.ts$/, '.js'))
    mkdirSync(dirname(out), { recursive: true })
    writeFileSync(out, code)
  }
  writeFileSync(join(target, 'package.json'), '{"type":"module"}\n')
  symlinkSync(join(root, 'node_modules'), join(target, 'node_modules'))
  return {
    worker: join(target, 'test/simulation/worker.js'),
    remove: () => rmSync(target, { recursive: true, force: true }),
  }
}

/** Throws unless the text that is replaced occurs once in its file. */
export function checkReplacement(replacement: Replacement): void {
  replaceIn(readFileSync(join(root, replacement.file), 'utf8'), replacement)
}

function replaceIn(text: string, { file, find, put }: Replacement): string {
  const times = text.split(find).length - 1
  if (times !== 1)
    throw new Error(`the text to replace must occur once in ${file}, not ${times} times: ${find}`)
  return text.replace(find, () => put)
}

function transpile(text: string, sourcefile: string): string {
  const compiledImports = text.replace(IMPORTED, (found) => found.replace(/\.ts'$/, ".js'"))
  return transformSync(compiledImports, {
    sourcefile,
    loader: 'ts',
    format: 'esm',
    target: 'es2023',
    tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true } },
  }).code
}
