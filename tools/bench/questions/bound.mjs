// What does a call cost more if its session is bound to the browser's device?
import { again, startOurs, startWorker } from '../candidates.mjs'
import { compare } from '../compare.mjs'
import { markdownTable, range } from '../page.mjs'
import { figuresOfLoads, putUnderLoad } from '../under-load.mjs'
import { calls } from './calls.mjs'

/** Sessions are bound over https alone. The load comes without TLS, as from a reverse proxy. */
const PUBLIC_URL = 'https://bench.example'

const UNBOUND = { name: 'unbound', title: 'a session that is not bound', asksRedis: false }
const BOUND = { ...UNBOUND, name: 'bound', title: 'a bound session', goal: 1.02 }

export const bound = {
  candidates: [UNBOUND, again(UNBOUND), BOUND],
  reference: UNBOUND,
  usual: { rounds: 9, seconds: 6, warmup: 5, browsers: 100, connections: 64 },
  quick: { rounds: 2, seconds: 1, warmup: 0.5, browsers: 40 },

  async measure(services, { candidates, browsers, connections, ...options }) {
    const server = shareOne(() => startOurs(services, { env: { PUBLIC_URL } }))
    const worker = await startWorker(services, { env: { PUBLIC_URL } })
    const cookies = {
      unbound: await worker.ask({ job: 'fill', count: browsers, keep: browsers }),
      bound: await worker.ask({ job: 'fill', count: browsers, keep: browsers, bound: true }),
    }
    await worker.stop()
    const { rows, noise } = await compare({
      candidates,
      reference: UNBOUND,
      options,
      start({ name, ...candidate }) {
        const own = name === 'bound' ? cookies.bound : cookies.unbound
        const start = async () => ({ ...(await server.start()), cookies: own })
        return putUnderLoad(services, { ...candidate, name, start }, calls.shapeOf({ browsers, connections }))
      },
      figuresOf: figuresOfLoads,
      judgedBy: ['cpu'],
    })
    return { table: tableOf(rows), noise }
  },
}

/** One process for all candidates of a round: two would differ more by what their compilers decide. */
function shareOne(startServer) {
  let users = 0
  let starting = null
  return {
    async start() {
      users += 1
      starting ??= startServer()
      const started = await starting
      const stop = async () => {
        users -= 1
        if (users > 0) return
        starting = null
        await started.stop()
      }
      return { ...started, stop }
    },
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
