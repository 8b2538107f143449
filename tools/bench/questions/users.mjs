// What do 2,000 signed-in pages cost that each ask every 5 seconds for three fluxes?
import { again, BARE, FLOOR_OF_USERS, FLOORS, OURS, PEERS } from '../candidates.mjs'
import { compare } from '../compare.mjs'
import { markdownTable, range } from '../page.mjs'
import { figuresOfLoads, putUnderLoad } from '../under-load.mjs'

const CALLS = 3

const [PACKAGES_ALONE] = FLOORS

export const users = {
  candidates: [OURS, again(OURS), BARE, PACKAGES_ALONE, FLOOR_OF_USERS, ...PEERS],
  reference: BARE,
  usual: { rounds: 3, seconds: 60, warmup: 6, browsers: 2_000, connections: 64, every: 5 },
  quick: { rounds: 1, seconds: 4, warmup: 0.5, browsers: 100, every: 1 },

  async measure(services, { candidates, connections, browsers, every, ...options }) {
    // As from a reverse proxy: kept-alive connections that all browsers share.
    const shape = { connections, pages: { everySeconds: every, calls: CALLS } }
    const { rows, noise } = await compare({
      candidates,
      reference: BARE,
      // One turn of a minute: the activity of a session is recorded once in a minute, not once in a turn.
      options: { ...options, turnSeconds: Number.POSITIVE_INFINITY },
      start: (candidate) => putUnderLoad(services, candidate, { browsers, requestsOf, shape }),
      figuresOf: figuresOfLoads,
      judgedBy: ['cpu'],
    })
    return { table: tableOf(rows), noise }
  },
}

function requestsOf(cookies) {
  return cookies.flatMap((cookie) =>
    Array.from({ length: CALLS }, (_, at) => ({ path: `/flux/small/s${at + 1}`, cookie })),
  )
}

function tableOf(rows) {
  return markdownTable(
    [
      ['', ({ title }) => title],
      ['CPU µs/call', ({ figures }) => range(figures.cpu, 0)],
      ['× bare', ({ times }) => times.cpu.middle.toFixed(2)],
      ['Redis commands/call', ({ figures }) => figures.redis.middle.toFixed(2)],
      ['p50 ms', ({ figures }) => range(figures.p50, 2)],
      ['p99 ms', ({ figures }) => range(figures.p99, 2)],
    ],
    rows,
  )
}
