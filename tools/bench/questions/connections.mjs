// What does a signed-in GET /flux cost at several numbers of connections?
import { compare } from '../compare.mjs'
import { markdownTable, range, whole } from '../page.mjs'
import { figuresOfLoads, putUnderLoad } from '../under-load.mjs'
import { calls } from './calls.mjs'

/**
 * A question with one pair of columns for each number of connections: a lone call pays for its turns of the event loop,
 * and 64 connections share them. `times`: the heading of the ratio to the reference.
 */
export function callsAt(connections, { candidates, reference, times }) {
  return {
    candidates,
    reference,
    usual: { rounds: 5, seconds: 4, warmup: 6, browsers: 100 },
    quick: { rounds: 1, seconds: 1, warmup: 0.5, browsers: 4 },

    async measure(services, { candidates, browsers, ...options }) {
      const compared = []
      for (const each of connections)
        compared.push(
          await compare({
            candidates,
            reference,
            options,
            start: (candidate) =>
              putUnderLoad(services, candidate, calls.shapeOf({ browsers, connections: each })),
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
      const count = `${connections[at]} connection${connections[at] === 1 ? '' : 's'}`
      return [
        [`CPU µs/call, ${count}`, (row) => range(rowOf(row).figures.cpu, 0)],
        [times, (row) => rowOf(row).times.cpu.middle.toFixed(2)],
      ]
    })
    const { rows } = compared.at(-1)
    const peak = ['peak MB', ({ figures }) => whole(figures.peak.middle / 1e6)]
    return markdownTable([['', ({ title }) => title], ...columns, peak], rows)
  }
}
