// The files of the repository, by their paths in it.
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { codeBlocks } from '../helpers/documentation.ts'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

export function read(path: string): string {
  return readFileSync(`${ROOT}/${path}`, 'utf8')
}

/** The paths of all files below a folder whose name has this ending. */
export function filesBelow(folder: string, ending: string): string[] {
  return readdirSync(`${ROOT}/${folder}`, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(ending))
    .map((name) => `${folder}/${name}`)
}

/** The pages that users read. */
export const PAGES = [
  ...readdirSync(ROOT).filter((name) => name.endsWith('.md')),
  ...filesBelow('docs', '.md'),
  ...['operations', 'package', 'vite'].map((name) => `examples/${name}/README.md`),
]

/** The commands in the shell blocks of a page, without comments. A command on two lines becomes one. */
export function commandsOf(page: string): { heading: string; command: string }[] {
  return codeBlocks(page)
    .filter(({ language }) => language === 'sh')
    .flatMap(({ heading, code }) =>
      code
        .replaceAll('\\\n', ' ')
        .split('\n')
        .map((line) => ({ heading, line })),
    )
    .map(({ heading, line }) => ({ heading, command: line.replace(/(^| )# .*$/, '').trim() }))
    .filter(({ command }) => command !== '')
}
