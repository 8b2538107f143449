// Does a refresh, a call or a sign-out cost more when there are more sessions, on one master or three?
import { again, startWorker } from '../candidates.mjs'
import { compare } from '../compare.mjs'
import { runLoad } from '../load/load.mjs'
import { cpuOf, memoryOf } from '../machine.mjs'
import { markdownTable, say, whole } from '../page.mjs'
import { startBackground } from './refresh.mjs'

const CONNECTIONS = 64
/** Of the sessions, so many take part in the calls. */
const BROWSERS = 1_000

// `share` is a part of `--sessions`.
const STORES = [1, 3].flatMap((masters) => [
  { masters, share: 0.01, name: `small-${masters}` },
  { masters, share: 0.1, name: `medium-${masters}` },
  { masters, share: 1, name: `large-${masters}` },
])
const [SMALLEST] = STORES

export const growth = {
  candidates: [SMALLEST, again(SMALLEST), ...STORES.slice(1)],
  reference: SMALLEST,
  usual: { rounds: 3, seconds: 4, warmup: 4, sessions: 1_000_000, count: 2_000 },
  quick: { rounds: 1, seconds: 1, warmup: 0.5, sessions: 20_000, count: 200 },

  async measure(services, { candidates, sessions, count, ...options }) {
    const stores = new Map()
    for (const { name, masters, share } of candidates)
      stores.set(name, await fillStore(services, masters, Math.round(sessions * share)))
    const { rows, noise } = await compare({
      candidates,
      reference: SMALLEST,
      options: { ...options, turnSeconds: Number.POSITIVE_INFINITY },
      start: ({ name }) => start(services, stores.get(name), count),
      figuresOf: (loads) => loads.at(-1),
      judgedBy: ['refresh', 'call', 'signOut'],
    })
    return { table: tableOf(rows.map((row) => ({ ...row, ...stores.get(row.name) }))), noise }
  },
}

async function fillStore(services, masters, sessions) {
  const store = await services.startStore(masters)
  say(`storing ${sessions} sessions on ${masters} masters`)
  const before = await store.usedBytes()
  const { ask, stop } = await startWorker({ ...services, store })
  const cookies = await ask({ job: 'fill', count: sessions, keep: BROWSERS })
  await stop()
  return { store, cookies, sessions, redisBytes: (await store.usedBytes()) - before }
}

async function start(services, { store, cookies }, count) {
  const own = { ...services, store }
  // With its cache, a call of a busy session would say nothing about the store.
  const { server, refresh, stop } = await startBackground(own, { SESSION_CACHE_MS: '0' })
  const calls = cookies.map((cookie, at) => ({ path: `/flux/small/s${at}`, cookie }))

  /** CPU of the server in microseconds for each request of a load. */
  async function cpuEach(requests, more) {
    const before = cpuOf(server.pid)
    const shape = { processes: services.processes, url: server.url, connections: CONNECTIONS }
    const outcome = await runLoad({ ...shape, requests, ...more })
    if (outcome.failed > 0) throw new Error(`${outcome.failed} of ${outcome.requests} responses were errors`)
    return (cpuOf(server.pid) - before) / outcome.requests
  }

  async function measure(seconds, refreshes) {
    const call = await cpuEach(calls, { seconds })
    const { cpu, cookies: due } = await refresh(refreshes)
    // Those sessions again: the store keeps its size.
    const signOuts = due.map((cookie) => ({ method: 'POST', path: '/auth/logout', cookie }))
    const signOut = await cpuEach(signOuts, { once: true })
    return { refresh: cpu / refreshes, call, signOut, memory: memoryOf(server.pid) }
  }

  return {
    warmUp: (seconds) => measure(seconds, Math.ceil(count / 4)),
    load: (seconds) => measure(seconds, count),
    stop,
  }
}

function tableOf(rows) {
  const cost =
    (key) =>
    ({ figures, times }) =>
      `${whole(figures[key].middle)}; ${times[key].middle.toFixed(2)} ×`
  const title = ({ name, title, sessions, masters }) =>
    name.endsWith('-again') ? title : `${whole(sessions)}, ${masters === 1 ? 'one master' : 'three masters'}`
  return markdownTable(
    [
      ['sessions', title],
      ['CPU µs/refresh', cost('refresh')],
      ['CPU µs/call', cost('call')],
      ['CPU µs/sign-out', cost('signOut')],
      ['Redis MB', ({ redisBytes }) => whole(redisBytes / 1e6)],
      ['process MB', ({ figures }) => whole(figures.memory.middle / 1e6)],
    ],
    rows,
  )
}
