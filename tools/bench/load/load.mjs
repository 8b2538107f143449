// Generates load on one candidate from the cores of the load generator.
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { pinned } from '../machine.mjs'
import { findProgram } from '../places.mjs'
import { BROWSER_HEADERS } from '../sign-in.mjs'

const SCRIPT = fileURLToPath(new URL('wrk.lua', import.meta.url))
const SOCKETS = fileURLToPath(new URL('sockets.mjs', import.meta.url))

/** The load generator to use: the requested one, else wrk if it is installed. */
export function chooseLoad(wanted) {
  const wrk = findProgram('wrk')
  if (wanted === 'wrk' && wrk === null) throw new Error('wrk is not installed; use --load sockets')
  return wanted ?? (wrk === null ? 'sockets' : 'wrk')
}

/**
 * Runs the load to its end. Returns `{requests, seconds, failed, p50, p99}`, the last two in milliseconds.
 * `failed` counts error responses and broken connections.
 */
export function runLoad({ kind, folder, url, requests, connections, seconds }) {
  const file = join(folder, 'requests.tsv')
  writeFileSync(file, requests.map(({ path, cookie }) => `${path}\t${cookie}\n`).join(''))
  return kind === 'wrk'
    ? runWrk({ file, url, connections, seconds })
    : runSockets({ file, url, connections, seconds })
}

function runWrk({ file, url, connections, seconds }) {
  const headers = Object.entries(BROWSER_HEADERS).flatMap(([name, value]) => ['-H', `${name}: ${value}`])
  const whole = Math.max(1, Math.round(seconds))
  const shape = ['-t1', `-c${connections}`, `-d${whole}s`, '--timeout', '10s', '--latency']
  return lastLine(findProgram('wrk'), [...shape, '-s', SCRIPT, ...headers, url], { BENCH_REQUESTS: file })
}

function runSockets({ file, url, connections, seconds }) {
  const port = Number(new URL(url).port)
  const orders = { port, file, headers: BROWSER_HEADERS, connections, seconds }
  return lastLine(process.execPath, [SOCKETS, JSON.stringify(orders)], {})
}

async function lastLine(command, args, env) {
  const [program, programArgs] = pinned('load', command, args)
  const child = spawn(program, programArgs, {
    env: { PATH: process.env.PATH ?? '', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text) => (output += text))
  await new Promise((resolve) => child.once('close', resolve).once('error', resolve))
  const line = output.trim().split('\n').at(-1)
  try {
    return JSON.parse(line)
  } catch {
    throw new Error(`the load ended without a result:\n${output}`)
  }
}
