// What does a refresh cost when the token endpoint responds at once?
import { setTimeout as pause } from 'node:timers/promises'
import { again, startOurs, startWorker } from '../candidates.mjs'
import { compare, total } from '../compare.mjs'
import { cpuOf } from '../machine.mjs'
import { markdownTable, range } from '../page.mjs'

const LIBRARIES = {
  name: 'libraries',
  title: 'the libraries alone: openid-client, ioredis, one seal',
  start: (services, env) => startLibraries(services, env, false),
}
const FLOOR = {
  name: 'floor',
  title: 'floor: the same, and back into the queue of due sessions',
  start: (services, env) => startLibraries(services, env, true),
}
const OURS = { name: 'ours', title: 'this server, in the background', goal: 1.15, start: startBackground }

export const refresh = {
  candidates: [OURS, again(OURS), LIBRARIES, FLOOR],
  reference: LIBRARIES,
  usual: { rounds: 7, seconds: 4, warmup: 5, count: 2_500 },
  quick: { rounds: 1, seconds: 1, warmup: 1, count: 500 },

  /** `count`: refreshes in each second of `seconds` and `warmup`, as far as the machine does so many. */
  async measure(services, { candidates, count, ...options }) {
    const { rows, noise } = await compare({
      candidates,
      reference: LIBRARIES,
      options,
      async start(candidate) {
        const { refresh, stop } = await candidate.start(services, { REDIS_PREFIX: `${candidate.name}:` })
        const load = (seconds) => refresh(Math.ceil(count * seconds))
        return { warmUp: load, load, stop }
      },
      figuresOf: (loads) => ({ cpu: total(loads, 'cpu') / total(loads, 'count') }),
      judgedBy: ['cpu'],
    })
    return { table: tableOf(rows), noise }
  },
}

async function startLibraries(services, env, queued) {
  const { ask, stop } = await startWorker(services, { core: 'server', env })
  return { refresh: (count) => ask({ job: 'libraries', count, queued }), stop }
}

/** Starts the server, and a worker beside it for `refresh(count)`, which returns the CPU of the server in microseconds. */
export async function startBackground(services, env, nodeArgs) {
  const server = await startOurs(services, { env, nodeArgs })
  const worker = await startWorker(services, { env })
  return {
    server,
    /** The worker stores so many sessions whose tokens are due, then the server refreshes them at once. Returns their cookies too. */
    async refresh(count) {
      const { granted } = await services.counts()
      const cookies = await worker.ask({ job: 'fill', count, keep: count, asDue: true })
      const before = cpuOf(server.pid)
      await worker.ask({ job: 'enqueue' })
      while ((await services.counts()).granted < granted + count) await pause(20)
      // Until the last tokens are stored.
      await pause(50)
      return { count, cookies, cpu: cpuOf(server.pid) - before }
    },
    async stop() {
      await worker.stop()
      await server.stop()
    },
  }
}

function tableOf(rows) {
  return markdownTable(
    [
      ['', ({ title }) => title],
      ['CPU µs/refresh', ({ figures }) => range(figures.cpu, 0)],
      ['× libraries', ({ times }) => times.cpu.middle.toFixed(2)],
      ['goal', ({ goal }) => goal?.toFixed(2) ?? ''],
    ],
    rows,
  )
}
