// How fast do large files pass, and in how much memory?
import { createReadStream, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { BROWSER_HEADERS, signInMany } from '../browser.mjs'
import { again, startOurs, startPeer } from '../candidates.mjs'
import { compare, total } from '../compare.mjs'
import { BENCH, cpuOf, memoryOf } from '../machine.mjs'
import { markdownTable, range, whole } from '../page.mjs'
import { freePort } from '../processes.mjs'

/** The largest upload that can be declared. */
const BYTES = 100 * 1_024 * 1_024
const PATH = '/data/DEMO/FileStore/1'
const TYPE = 'application/octet-stream'

const OURS = { name: 'ours', title: 'this server', start: startDeclared }
const PIPE = { name: 'pipe', title: 'a bare pipe: node:http + undici', start: startPipe }

export const files = {
  candidates: [OURS, again(OURS), PIPE],
  reference: PIPE,
  usual: { rounds: 5, seconds: 3, warmup: 1 },
  quick: { rounds: 1, seconds: 1, warmup: 1 },

  /** `seconds`: so many files of 100 MiB in each direction. */
  async measure(services, { candidates, ...options }) {
    services.filesUrl = await startFiles(services)
    const { rows, noise } = await compare({
      candidates,
      reference: PIPE,
      options,
      async start(candidate) {
        const { pid, url, cookie, stop } = await candidate.start(services)
        const agent = new Agent({ keepAlive: true, maxSockets: 1 })
        const load = (count) => transfer({ pid, url, cookie, agent, count: Math.ceil(count) })
        return {
          warmUp: load,
          load,
          async stop() {
            agent.destroy()
            await stop()
          },
        }
      },
      figuresOf: (loads) => ({
        down: total(loads, 'bytes') / total(loads, 'downSeconds') / 1e6,
        up: total(loads, 'bytes') / total(loads, 'upSeconds') / 1e6,
        cpu: total(loads, 'cpu') / ((2 * total(loads, 'bytes')) / 1e6),
        peak: loads.at(-1).peak,
      }),
      judgedBy: ['down', 'up'],
    })
    return { table: tableOf(rows), noise }
  },
}

async function startFiles({ processes }) {
  const port = await freePort()
  const args = [join(BENCH, 'platform', 'files.mjs'), String(port), String(BYTES)]
  await processes.start(process.execPath, args, { core: 'load', ready: /ready/, ipc: true })
  return `http://127.0.0.1:${port}`
}

async function startDeclared(services) {
  const operations = join(services.processes.folder, 'files.json')
  const path = { path: '/{wac}/FileStore/{fileId}', parameters: { fileId: 'id' } }
  const body = { types: [TYPE], limit: BYTES }
  const declared = {
    GetFile: { method: 'GET', ...path, formats: 'any' },
    PutFile: { method: 'PUT', ...path, body },
  }
  writeFileSync(operations, JSON.stringify({ operations: declared }))
  const env = { BASE_URL: services.filesUrl, OPERATIONS_FILE: operations }
  const started = await startOurs({ ...services, publicUrl: undefined }, { env })
  const [cookie] = await signInMany(`${started.url}/auth/login`, 1)
  return { ...started, cookie }
}

function startPipe(services) {
  return startPeer(services, 'bare-pipe', { env: { FILES_URL: services.filesUrl } })
}

async function transfer({ pid, url, cookie = '', agent, count }) {
  const headers = { ...BROWSER_HEADERS, accept: '*/*', 'accept-encoding': 'identity', cookie }
  const before = cpuOf(pid)
  const secondsOf = async (options, body) => {
    const begun = performance.now()
    for (let each = 0; each < count; each += 1) await exchange(url + PATH, { agent, ...options }, body)
    return (performance.now() - begun) / 1_000
  }
  const downSeconds = await secondsOf({ headers })
  const sent = { ...headers, 'content-type': TYPE, 'content-length': BYTES }
  const upSeconds = await secondsOf({ method: 'PUT', headers: sent }, () =>
    createReadStream('/dev/zero', { end: BYTES - 1, highWaterMark: 64 * 1_024 }),
  )
  return {
    bytes: count * BYTES,
    downSeconds,
    upSeconds,
    cpu: cpuOf(pid) - before,
    peak: memoryOf(pid, 'VmHWM'),
  }
}

/** Resolves when the response is over; rejects if it is an error or lacks bytes. */
async function exchange(url, options, bodyOf) {
  const sent = request(url, options)
  const responded = new Promise((resolve, reject) => sent.once('response', resolve).once('error', reject))
  await (bodyOf === undefined ? sent.end() : pipeline(bodyOf(), sent))
  const response = await responded
  let bytes = 0
  for await (const chunk of response) bytes += chunk.length
  const { statusCode: status } = response
  if (status !== (bodyOf ? 204 : 200) || bytes !== (bodyOf ? 0 : BYTES))
    throw new Error(`${url}: ${status}, ${bytes} bytes`)
}

function tableOf(rows) {
  return markdownTable(
    [
      ['', ({ title }) => title],
      ['down, MB/s', ({ figures }) => range(figures.down, 0)],
      ['× a pipe', ({ times }) => times.down.middle.toFixed(2)],
      ['up, MB/s', ({ figures }) => range(figures.up, 0)],
      ['× a pipe', ({ times }) => times.up.middle.toFixed(2)],
      ['goal', ({ name }) => (name === 'ours' ? '0.90' : '')],
      ['CPU µs/MB', ({ figures }) => whole(figures.cpu.middle)],
      ['peak MB', ({ figures }) => whole(figures.peak.middle / 1e6)],
    ],
    rows,
  )
}
