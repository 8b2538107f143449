// The Redis that is filled: one master, or a Cluster of several on the cores of the load.
import { cpuOf } from '../machine.mjs'
import { findProgram } from '../places.mjs'
import { freePort } from '../processes.mjs'

const SLOTS = 16_384
const FORMED_MS = 30_000

/**
 * Starts so many masters; one is the Redis of the services. Returns their `url` for the server, the `port` of the first,
 * and functions over all of them: `info(section)` (a list of texts), `memoryOf(key)` in bytes, and `cpu()` in
 * microseconds, null if unknown.
 */
export async function startMasters(services, count) {
  if (count === 1) {
    const { redis, redisPort, redisPid } = services
    return mastersOf([{ client: redis, port: redisPort, pid: redisPid }], 'redis')
  }
  const nodes = []
  for (let each = 0; each < count; each += 1) nodes.push(await startNode(services))
  for (const [at, { client }] of nodes.entries()) {
    const [from, to] = [Math.ceil((at * SLOTS) / count), Math.ceil(((at + 1) * SLOTS) / count) - 1]
    await client.call('cluster', 'addslotsrange', from, to)
    for (const { port, busPort } of nodes) await client.call('cluster', 'meet', '127.0.0.1', port, busPort)
  }
  await untilFormed(nodes)
  return mastersOf(nodes, 'redis-cluster')
}

async function startNode({ processes, connect }) {
  const [port, busPort] = [await freePort(), await freePort()]
  const own = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', processes.folder]
  const cluster = [
    '--cluster-enabled',
    'yes',
    '--cluster-port',
    String(busPort),
    '--cluster-config-file',
    `nodes-${port}.conf`,
  ]
  const { pid } = await processes.start(findProgram('redis-server'), [...own, ...cluster], {
    core: 'load',
    ready: /Ready to accept connections/,
  })
  return { client: connect(port), port, busPort, pid }
}

async function untilFormed(nodes) {
  const deadline = performance.now() + FORMED_MS
  const isFormed = async ({ client }) => {
    const state = await client.call('cluster', 'info')
    return state.includes('cluster_state:ok') && state.includes(`cluster_known_nodes:${nodes.length}`)
  }
  while (!(await Promise.all(nodes.map(isFormed))).every(Boolean)) {
    if (performance.now() > deadline) throw new Error('the Cluster does not form')
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

function mastersOf(nodes, scheme) {
  return {
    count: nodes.length,
    url: `${scheme}://${nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}`,
    port: nodes[0].port,
    info: (section) => Promise.all(nodes.map(({ client }) => client.info(section))),
    async memoryOf(key) {
      for (const { client } of nodes) {
        const bytes = await client.memory('USAGE', key, 'SAMPLES', 0).catch(unlessMoved)
        if (bytes !== undefined) return bytes ?? 0
      }
      throw new Error(`no master has ${key}`)
    },
    cpu() {
      const each = nodes.map(({ pid }) => cpuOf(pid))
      return each.includes(null) ? null : each.reduce((sum, value) => sum + value)
    },
  }
}

function unlessMoved(error) {
  if (!/^MOVED /.test(error.message)) throw error
  return undefined
}
