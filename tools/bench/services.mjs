// What every candidate uses: Redis, an authorization server and a resource server, on the cores of the load.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { BENCH, findProgram, keepAwake, MAIN, moveToLoad } from './machine.mjs'
import { createProcesses, freePort } from './processes.mjs'

/** Runs `work` with all of it, and ends all processes after it. */
export async function withServices(work) {
  if (!existsSync(MAIN)) throw new Error('dist/ is missing. Run: npm run build')
  if (findProgram('redis-server') === null)
    throw new Error('redis-server is missing. On Debian or Ubuntu: apt-get install redis-server')
  moveToLoad()
  keepAwake()
  const processes = createProcesses()
  const onSignal = () => void processes.end().finally(() => process.exit(1))
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, onSignal)
  const clients = []
  try {
    return await work(await startServices(processes, clients))
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM']) process.off(signal, onSignal)
    for (const client of clients) client.disconnect()
    await processes.end()
  }
}

async function startServices(processes, clients) {
  const startPlatform = async (name) => {
    const port = await freePort()
    const file = join(BENCH, 'platform', `${name}.mjs`)
    const options = { core: 'load', ready: /ready/, ipc: true }
    const { ask } = await processes.start(process.execPath, [file, String(port)], options)
    return { url: `http://127.0.0.1:${port}`, ask }
  }
  const upstream = await startPlatform('resource-server')
  const auth = await startPlatform('authorization-server')
  const startStore = (masters) => startRedis({ processes, clients, masters })
  return {
    processes,
    startStore,
    store: await startStore(1),
    upstreamUrl: upstream.url,
    authUrl: auth.url,
    /** Responses of the resource server to calls with a token, and granted token requests. */
    counts: () => upstream.ask('counts'),
    /** The cookies of the browsers that signed in, by candidate. */
    cookies: new Map(),
  }
}

/** One Redis, or a Cluster of several masters. Its figures are sums over all of them. */
async function startRedis({ processes, clients, masters }) {
  const nodes = []
  for (let each = 0; each < masters; each += 1) {
    const port = await freePort()
    const own = ['--port', port, '--bind', '127.0.0.1', '--save', '', '--dir', processes.folder]
    const bus = ['--cluster-enabled', 'yes', '--cluster-port', await freePort()]
    const cluster = masters === 1 ? [] : [...bus, '--cluster-config-file', `nodes-${port}.conf`]
    const options = { core: 'load', ready: /Ready to accept connections/ }
    await processes.start(findProgram('redis-server'), [...own, ...cluster].map(String), options)
    const client = new Redis({ port, host: '127.0.0.1' })
    clients.push(client)
    nodes.push({ port, client })
  }
  if (masters > 1) {
    const addresses = nodes.map(({ port }) => `127.0.0.1:${port}`)
    const args = ['--cluster', 'create', ...addresses, '--cluster-yes']
    await processes.start(findProgram('redis-cli'), args, { core: 'load', ready: /All 16384 slots covered/ })
  }
  const scheme = masters === 1 ? 'redis' : 'redis-cluster'
  const info = (section) => Promise.all(nodes.map(({ client }) => client.info(section)))
  const total = (texts, pattern) =>
    texts
      .flatMap((text) => [...text.matchAll(pattern)])
      .reduce((sum, [, name, number]) => sum + (name === 'info' ? 0 : Number(number)), 0)
  return {
    url: `${scheme}://${nodes.map(({ port }) => `127.0.0.1:${port}`).join()}`,
    client: nodes[0].client,
    port: nodes[0].port,
    usedBytes: async () => total(await info('memory'), /(used_memory):(\d+)/g),
    /** Commands so far, those inside scripts too. */
    commands: async () => total(await info('commandstats'), /cmdstat_([^:]+):calls=(\d+)/g),
  }
}
