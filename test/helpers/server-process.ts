// The built server (dist/) as a child process, with its log lines.

import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Child, startChild, type Teardown, waitForOutput } from './child.ts'
import { freePort } from './ports.ts'

/** Environment variables; undefined removes a default. */
export type Env = Record<string, string | undefined>

export type ServerProcess = ReturnType<typeof serverProcess>

export interface LogLine {
  readonly msg?: string
  readonly level?: string
  readonly [member: string]: unknown
}

const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))))
const ATTEMPTS = 5

/**
 * Values that make a valid configuration together with the two ports and `PUBLIC_URL`: one process, the
 * memory store, a platform that nobody serves.
 */
export const SERVER_ENV: Readonly<Record<string, string>> = {
  HOST: '127.0.0.1',
  AUTH_URL: 'http://127.0.0.1:9',
  BASE_URL: 'http://127.0.0.1:9',
  CLIENT_ID: 'test-client',
  CLIENT_SECRET: 'test-client-secret',
  SESSION_SECRET: 'a-secret-of-the-tests-longer-than-32-characters',
  SESSION_STORE: 'memory',
}

/**
 * The built server as a process of its own, ready for requests. Its environment is `SERVER_ENV`, two free
 * ports, and `env` over them. Throws with its output when it ends instead.
 */
export async function startServer(t: Teardown, env: Env = {}): Promise<ServerProcess> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const port = await freePort()
    const whole = defined({
      ...SERVER_ENV,
      PORT: String(port),
      OPS_PORT: String(await freePort()),
      PUBLIC_URL: `http://localhost:${port}`,
      ...env,
    })
    const child = startBuilt(t, 'main.js', whole)
    const listening = await waitForOutput(child, readListening)
    if (listening !== null) return serverProcess(child, listening, whole.PUBLIC_URL ?? '')
    if (!child.output().includes('EADDRINUSE')) {
      throw new Error(`the server ended at its start:\n${child.output()}`)
    }
  }
  throw new Error(`no free port for the server in ${ATTEMPTS} attempts`)
}

/** The memory that a server holds now, in MiB. */
export function residentMib({ pid }: Pick<ServerProcess, 'pid'>): number {
  const kib = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]
  return Number(kib) / 1024
}

/** Runs the built server with exactly this environment until it ends by itself. */
export function runServer(t: Teardown, env: Env) {
  return runBuilt(t, 'main.js', defined(env))
}

/** Runs a program of dist/ with this environment and `PATH` until it ends by itself. */
export async function runBuilt(
  t: Teardown,
  file: string,
  env: Record<string, string>,
  args: readonly string[] = [],
) {
  const child = startBuilt(t, file, env, args)
  const { code } = await child.ended
  return { code, stdout: child.stdout(), stderr: child.stderr() }
}

/** Starts a program of dist/ with this Node. It inherits only PATH. */
export function startBuilt(
  t: Teardown,
  file: string,
  env: Record<string, string>,
  args: readonly string[] = [],
): Child {
  const path = join(ROOT, 'dist', file)
  if (!existsSync(path)) throw new Error(`dist/${file} is missing: run npm run build`)
  return startChild(t, process.execPath, [path, ...args], {
    cwd: ROOT,
    env: { PATH: process.env.PATH ?? '', ...env },
  })
}

function serverProcess(child: Child, listening: LogLine, publicUrl: string) {
  const { url, opsUrl } = listening
  if (typeof url !== 'string') throw new Error(`the listening line has no url: ${JSON.stringify(listening)}`)
  return {
    /** Base URL of the public port, as the process logs it. */
    url,
    /** Base URL of health checks and metrics; null if `OPS_PORT` is 0. */
    opsUrl: typeof opsUrl === 'string' ? opsUrl : null,
    /** `PUBLIC_URL`, by default `http://localhost:<port>`. */
    publicUrl,
    pid: child.pid,
    /** The log lines so far. One that is not JSON becomes `{ msg: <the line> }`. */
    logs: () => parseLines(child.output()),
    output: child.output,
    /** Sends the signal (default SIGTERM) and waits for the end. Returns the exit code (null: killed). */
    stop: async (signal?: NodeJS.Signals) => (await child.stop(signal)).code,
    /** Sends a signal and does not wait. */
    send: child.send,
    ended: child.ended,
  }
}

function readListening(output: string): LogLine | null {
  return parseLines(output).find((line) => line.msg === 'listening') ?? null
}

function parseLines(output: string): LogLine[] {
  // Only complete lines: the last one may still be growing.
  const lines = output.slice(0, output.lastIndexOf('\n') + 1).split('\n')
  return lines.filter((line) => line !== '').map(parseLine)
}

function parseLine(line: string): LogLine {
  try {
    const value: unknown = JSON.parse(line)
    if (typeof value === 'object' && value !== null) return value as LogLine
  } catch {
    // Configuration errors and messages of Node are plain text.
  }
  return { msg: line }
}

function defined(env: Env): Record<string, string> {
  const entries = Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined)
  return Object.fromEntries(entries)
}
