// Runs a load on one server from the cores of the load.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { BROWSER_HEADERS } from '../browser.mjs'
import { BENCH, findProgram } from '../machine.mjs'

const WRK = findProgram('wrk')

/**
 * Sends `requests`, a list of `{ method, path, cookie }`, in rotation, on so many connections for so many seconds: each
 * as fast as responses come, or once, or as open pages do, or in sets: see generator.mjs for `once`, `pages` and `sets`.
 * Resolves with `{ requests, seconds, failed, p50, p99 }`, the last two in milliseconds; of sets with `inTurns` too.
 */
export async function runLoad({ processes, url, requests, connections, seconds, once, pages, sets }) {
  const file = join(processes.folder, 'requests.tsv')
  writeFileSync(
    file,
    requests.map(({ method = 'GET', path, cookie }) => `${method}\t${path}\t${cookie}\n`).join(''),
  )
  const isPlain = once === undefined && pages === undefined && sets === undefined
  const { output, ended } =
    WRK !== null && isPlain
      ? await startWrk({ processes, url, file, connections, seconds })
      : await startGenerator({ processes, url, file, connections, seconds, once, pages, sets })
  await ended
  const line = output().trim().split('\n').at(-1)
  if (!line.startsWith('{')) throw new Error(`the load ended without a result:\n${output()}`)
  return JSON.parse(line)
}

function startWrk({ processes, url, file, connections, seconds }) {
  const headers = Object.entries(BROWSER_HEADERS).flatMap(([name, value]) => ['-H', `${name}: ${value}`])
  const whole = Math.max(1, Math.round(seconds))
  const shape = ['-t1', `-c${connections}`, `-d${whole}s`, '--timeout', '10s', '--latency']
  const args = [...shape, '-s', join(BENCH, 'load', 'wrk.lua'), ...headers, url]
  return processes.start(WRK, args, { core: 'load', env: { BENCH_REQUESTS: file }, ready: /^/ })
}

function startGenerator({ processes, url, ...job }) {
  const order = JSON.stringify({ ...job, port: Number(new URL(url).port), headers: BROWSER_HEADERS })
  const args = [join(BENCH, 'load', 'generator.mjs'), order]
  return processes.start(process.execPath, args, { core: 'load', ready: /^/ })
}
