// What does a call cost more if its session is bound to the browser's device?
import { again, startOurs, startWorker } from '../candidates.mjs'
import { compare } from '../compare.mjs'
import { runLoad } from '../load/load.mjs'
import { markdownTable, range } from '../page.mjs'
import { calls } from './calls.mjs'

/** Sessions are bound over https alone. The load comes without TLS, as from a reverse proxy. */
const PUBLIC_URL = 'https://bench.example'

const SLOT_MS = 100

const UNBOUND = { name: 'unbound', title: 'a session that is not bound' }
const BOUND = { ...UNBOUND, name: 'bound', title: 'a bound session', goal: 1.02 }

export const bound = {
  candidates: [UNBOUND, again(UNBOUND), BOUND],
  reference: UNBOUND,
  usual: { rounds: 9, seconds: 24, warmup: 8, browsers: 100, connections: 8 },
  quick: { rounds: 2, seconds: 1, warmup: 0.5, browsers: 40 },

  async measure(services, { candidates, browsers, connections, ...options }) {
    const worker = await startWorker(services, { env: { PUBLIC_URL } })
    const cookies = {
      unbound: await worker.ask({ job: 'fill', count: browsers, keep: browsers }),
      bound: await worker.ask({ job: 'fill', count: browsers, keep: browsers, bound: true }),
    }
    await worker.stop()
    const sets = candidates.map(({ name }) => (name === 'bound' ? cookies.bound : cookies.unbound))
    const requests = sets.flatMap((cookies) => calls.requestsOf(cookies))
    const { rows, noise } = await compare({
      candidates,
      reference: UNBOUND,
      options: { ...options, turnSeconds: options.seconds },
      start: inOneProcess(services, { candidates, requests, connections }),
      figuresOf: ([{ count, cpu }]) => ({ cpu: cpu / count }),
      judgedBy: ['cpu'],
    })
    return { table: tableOf(rows), noise }
  },
}

/**
 * Starts all candidates of a round as one process, with turns so short that the machine is the same for all: two processes
 * differ more by what their compilers decide, and two seconds by what else runs. The load of the first is that of all; of
 * its responses only the status is checked.
 */
function inOneProcess(services, { candidates, requests, connections }) {
  const names = candidates.map(({ name }) => name)
  let round = null

  async function startRound() {
    const { url, pid, stop } = await startOurs(services, { env: { PUBLIC_URL } })
    const sets = { count: names.length, slotMs: SLOT_MS, pid }
    const run = (seconds) =>
      runLoad({ processes: services.processes, url, requests, connections, seconds, sets })
    const stopped = once(async () => {
      round = null
      await stop()
    })
    return { warmed: once(run), loaded: once(run), stopped }
  }

  return async ({ name }) => {
    round ??= startRound()
    const own = await round
    return {
      warmUp: own.warmed,
      async load(seconds) {
        const { failed, inTurns } = await own.loaded(seconds)
        if (failed > 0) throw new Error(`${name}: ${failed} responses were errors`)
        return inTurns[names.indexOf(name)]
      },
      stop: own.stopped,
    }
  }
}

/** Runs at the first call, and gives the others its result. */
function once(run) {
  let result = null
  return (seconds) => {
    result ??= run(seconds)
    return result
  }
}

function tableOf(rows) {
  return markdownTable(
    [
      ['', ({ title }) => title],
      ['CPU µs/request', ({ figures }) => range(figures.cpu, 1)],
      ['× not bound', ({ times }) => times.cpu.middle.toFixed(3)],
      ['goal', ({ goal }) => goal?.toFixed(2) ?? ''],
    ],
    rows,
  )
}
