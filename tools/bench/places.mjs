// Paths of folders and programs.
import { accessSync, constants, existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const BENCH = fileURLToPath(new URL('.', import.meta.url))
export const ROOT = join(BENCH, '..', '..')
export const DIST = join(ROOT, 'dist')
export const PAGE = join(ROOT, 'docs', 'benchmarks.md')
export const PEERS = join(BENCH, 'node_modules')

const FOLDERS = [
  ...(process.env.PATH ?? '').split(delimiter),
  '/usr/sbin',
  '/usr/local/bin',
  '/opt/homebrew/bin',
]

/** The full path of a program, or null. */
export function findProgram(name) {
  return FOLDERS.map((folder) => join(folder, name)).find(isExecutable) ?? null
}

/** Throws an Error with the next step if the server is not built or Redis is missing. */
export function requireServer() {
  if (!existsSync(join(DIST, 'main.js'))) throw new Error('dist/ is missing. Run: npm run build')
  if (findProgram('redis-server') === null) {
    throw new Error('redis-server is missing. On Debian or Ubuntu: apt-get install redis-server')
  }
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
