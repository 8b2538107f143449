// What does a signed-in GET /flux cost when 64 connections ask as fast as they can?
import { again, BARE, CONFIGURED, FLOORS, OURS, PEERS } from '../candidates.mjs'
import { compare } from '../compare.mjs'
import { markdownTable, range, whole } from '../page.mjs'
import { figuresOfLoads, putUnderLoad } from '../under-load.mjs'

const FLUXES = 1_000

export const calls = {
  candidates: [OURS, again(OURS), ...CONFIGURED, BARE, ...FLOORS, ...PEERS],
  reference: BARE,
  // A process has its final speed after about 100,000 requests, which a slow machine serves in five seconds.
  usual: { rounds: 7, seconds: 4, warmup: 6, browsers: 100, connections: 64 },
  quick: { rounds: 2, seconds: 1, warmup: 0.5, browsers: 40 },

  requestsOf,
  shapeOf: ({ browsers, ...shape }) => ({ browsers, requestsOf, shape, checksRedis: true }),

  async measure(services, { candidates, browsers, connections, ...options }) {
    const { rows, noise } = await compare({
      candidates,
      reference: BARE,
      options,
      start: (candidate) => putUnderLoad(services, candidate, calls.shapeOf({ browsers, connections })),
      figuresOf: figuresOfLoads,
      judgedBy: ['cpu'],
    })
    return { table: tableOf(rows), noise }
  },
}

function requestsOf(cookies) {
  return Array.from({ length: FLUXES }, (_, at) => ({
    path: `/flux/small/s${at + 1}`,
    cookie: cookies[at % cookies.length],
  }))
}

function tableOf(rows) {
  return markdownTable(
    [
      ['', ({ title }) => title],
      ['requests/s', ({ figures }) => whole(figures.perSecond.middle)],
      ['CPU µs/request', ({ figures }) => range(figures.cpu, 1)],
      ['× bare', ({ times }) => times.cpu.middle.toFixed(2)],
      ['goal', ({ goal }) => goal?.toFixed(2) ?? ''],
      ['peak MB', ({ figures }) => whole(figures.peak.middle / 1e6)],
    ],
    rows,
  )
}
