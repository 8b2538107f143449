// Runs open-loop.mjs on the cores of the load generator.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { BROWSER_HEADERS } from '../sign-in.mjs'
import { readSamples } from './samples.mjs'

const OPEN_LOOP = fileURLToPath(new URL('open-loop.mjs', import.meta.url))
const CONNECTIONS = 64
/** Both ends compile their code meanwhile. A slow load would not make them do so. */
const LEAD_SECONDS = 1.5

/**
 * A generator is too late to say anything about a server if more than one request in a hundred was due so many
 * milliseconds before the generator saw it.
 */
export const TOO_LATE_MS = 1

/**
 * Starts a load, and counts its requests after a lead at `leadRate`. `seconds` is its length from then, unless `stop` ends it earlier; both `result` and `stop()` resolve with
 * what open-loop.mjs prints, and with the `samples` of all requests. `authorization` is sent if it is given.
 */
export async function startAtRate(services, { url, requests, rate, leadRate, seconds, authorization }) {
  const file = join(services.folder, 'open-loop.tsv')
  const samples = join(services.folder, 'open-loop.samples')
  writeFileSync(file, requests.map(({ path, cookie }) => `${path}\t${cookie}\n`).join(''))
  const headers = { ...BROWSER_HEADERS, ...(authorization === undefined ? {} : { authorization }) }
  const port = Number(new URL(url).port)
  const orders = {
    port,
    file,
    headers,
    connections: CONNECTIONS,
    rate,
    lead: { seconds: LEAD_SECONDS, rate: leadRate },
    seconds,
    samples,
  }
  // Threads of V8 would never run beside a main thread that comes first on this core and waits for them in a loop.
  const args = ['--single-threaded', OPEN_LOOP, JSON.stringify(orders)]
  const load = await services.processes.start(process.execPath, args, {
    first: true,
    ready: /^started$/m,
  })
  const read = () => {
    const line = load.output().trim().split('\n').at(-1)
    if (!line.startsWith('{')) throw new Error(`the load ended without a result:\n${load.output()}`)
    return { ...JSON.parse(line), samples: readSamples(samples) }
  }
  return {
    result: () => load.ended.then(read),
    stop: () => load.stop().then(read),
  }
}
