// The cost of many idle sessions: memory in Redis, and the work of one idle replica.
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { cpuOf, peakOf } from '../machine.mjs'
import { DIST } from '../places.mjs'
import { freePort } from '../processes.mjs'
import { get } from '../sign-in.mjs'
import { replicaEnv } from './sessions.mjs'

const FILL = fileURLToPath(new URL('fill.mjs', import.meta.url))
const PREFIX = 'rest:'
const SETTLE_MS = 3_000

export async function measureAtRest(services, { sessions, idleSeconds, say }) {
  const settings = {
    redisPort: services.redisPort,
    tokenUrl: `${services.upstreamUrl}/oauth/token`,
    prefix: PREFIX,
  }
  const packedEach = await memoryOf(services, { settings, sessions, say, packed: true })
  const memoryEach = await memoryOf(services, { settings, sessions, say })

  const opsPort = await freePort()
  const port = await freePort()
  const opsUrl = `http://127.0.0.1:${opsPort}`
  const replica = await services.processes.start(process.execPath, [join(DIST, 'main.js')], {
    core: 'server',
    env: { ...replicaEnv(settings), PORT: String(port), OPS_PORT: String(opsPort) },
    ready: () => get(`${opsUrl}/livez`, {}),
  })
  await pause(SETTLE_MS)
  say(`an idle replica for ${idleSeconds} s`)
  const before = { commands: await commandCounts(services), cpu: cpuOf(replica.pid) }
  await pause(idleSeconds * 1_000)
  const after = { commands: await commandCounts(services), cpu: cpuOf(replica.pid) }
  const rates = Object.entries(after.commands)
    .map(([name, count]) => ({ name, rate: (count - (before.commands[name] ?? 0)) / idleSeconds }))
    .filter(({ name, rate }) => name !== 'info' && rate > 0)
    .sort((a, b) => b.rate - a.rate)
  const result = {
    sessions,
    memoryEach,
    packedEach,
    rates,
    cpuPercent: before.cpu === null ? null : (after.cpu - before.cpu) / idleSeconds / 1e4,
    peak: peakOf(replica.pid),
  }
  await replica.stop()
  return result
}

/** Bytes of one session. `packed`: Redis keeps a whole record in one allocation. */
async function memoryOf(services, { settings, sessions, say, packed = false }) {
  const { redis } = services
  await redis.flushall()
  await redis.config('SET', 'hash-max-listpack-value', packed ? 2_048 : 64)
  const before = await usedMemory(services)
  say(`storing ${sessions} sessions`)
  const fill = await services.processes.start(
    process.execPath,
    [FILL, JSON.stringify({ ...settings, sessions })],
    { core: 'server', ready: /filled/, readyMs: 600_000 },
  )
  await fill.stop()
  return ((await usedMemory(services)) - before) / sessions
}

async function usedMemory({ redis }) {
  return Number(/used_memory:(\d+)/.exec(await redis.info('memory'))[1])
}

/** Commands of clients and of scripts. Redis counts both. */
async function commandCounts({ redis }) {
  const lines = (await redis.info('commandstats')).matchAll(/cmdstat_([^:]+):calls=(\d+)/g)
  return Object.fromEntries([...lines].map(([, name, calls]) => [name, Number(calls)]))
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds))
}
