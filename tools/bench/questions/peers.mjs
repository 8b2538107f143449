// What does a signed-in GET /flux cost beside servers of the same kind in Go, at few and at many connections?
import { again, BARE, CONFIGURED, GO_PEERS, OURS } from '../candidates.mjs'
import { compare } from '../compare.mjs'
import { markdownTable, range, say, whole } from '../page.mjs'
import { HOW_TO_GET } from '../servers/go-peers.mjs'
import { figuresOfLoads, putUnderLoad } from '../under-load.mjs'
import { calls } from './calls.mjs'

/** A lone call pays for its turns of the event loop; 64 connections share them. */
const CONNECTIONS = [2, 64]

const UNCACHED = CONFIGURED.find(({ name }) => name === 'ours-uncached')

export const peers = {
  candidates: [OURS, again(OURS), UNCACHED, BARE, ...GO_PEERS],
  reference: OURS,
  usual: { rounds: 5, seconds: 4, warmup: 6, browsers: 100 },
  quick: { rounds: 1, seconds: 1, warmup: 0.5, browsers: 4 },

  async measure(services, { candidates, browsers, ...options }) {
    if (GO_PEERS.some(({ isInstalled }) => !isInstalled())) say(HOW_TO_GET)
    const compared = []
    for (const connections of CONNECTIONS)
      compared.push(
        await compare({
          candidates,
          reference: OURS,
          options,
          start: (candidate) => putUnderLoad(services, candidate, calls.shapeOf({ browsers, connections })),
          figuresOf: figuresOfLoads,
          judgedBy: ['cpu'],
        }),
      )
    const noises = compared.map(({ noise }) => noise)
    return { table: tableOf(compared), noise: noises.includes(null) ? null : Math.max(...noises) }
  },
}

function tableOf(compared) {
  const columns = compared.flatMap(({ rows }, at) => {
    const rowOf = ({ name }) => rows.find((row) => row.name === name)
    return [
      [`CPU µs/call, ${CONNECTIONS[at]} connections`, (row) => range(rowOf(row).figures.cpu, 0)],
      ['× this server', (row) => rowOf(row).times.cpu.middle.toFixed(2)],
    ]
  })
  const { rows } = compared.at(-1)
  const peak = ['peak MB', ({ figures }) => whole(figures.peak.middle / 1e6)]
  return markdownTable([['', ({ title }) => title], ...columns, peak], rows)
}
