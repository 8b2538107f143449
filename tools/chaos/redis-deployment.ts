import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { withTimeout } from '../../src/tokens/timeout.ts'
import { type Child, startChild, type Teardown, waitForOutput } from '../../test/helpers/child.ts'
import { freePort } from '../../test/helpers/ports.ts'
import { type RedisServer, startOnFreePort, startRedis, toolPath } from '../../test/helpers/redis.ts'
import { until } from '../../test/helpers/wait.ts'
import { makeFolder } from '../../test/helpers/watchdog.ts'
import { type Clock, type Failover, type History, type Mode, TOKEN_OR_COOKIE } from './history.ts'
import { createPortTranslator, type Link, startLink } from './network.ts'

/** A Redis server that holds data. */
export interface DataNode {
  readonly name: string
  readonly server: RedisServer
  /** Not through the network of any replica. Fails fast where the node is away. */
  readonly admin: Redis
  /** The last known role; null while the node does not respond. */
  role: 'master' | 'slave' | null
  /** Of a Redis replica that is in sync, the port of its master. */
  masterPort: number | null
}

interface SentinelProcess {
  readonly name: string
  readonly port: number
  readonly admin: Redis
  kill(): Promise<void>
  start(): Promise<void>
  isUp(): boolean
}

/** Redis as one mode runs it, with a network of its own for each replica of the server. */
export interface RedisDeployment {
  readonly mode: Mode
  readonly nodes: readonly DataNode[]
  readonly sentinels: readonly SentinelProcess[]
  /** Between the nodes of a Cluster: one link in front of each node's bus port, in the order of `nodes`. */
  readonly busLinks: readonly Link[]
  /** `REDIS_URL` of this replica. */
  urlFor(replica: number): string
  linksOf(replica: number): readonly Link[]
  /** The nodes that serve data now, as last seen; not a superseded one that still calls itself a master. */
  masters(): DataNode[]
  /** A Redis replica that has the data of this master, as last seen; null where there is none. */
  redisReplicaOf(master: DataNode): DataNode | null
  /** How many values on the masters hold a text that is secret. */
  findReadable(isSecret: (text: string) => boolean): Promise<number>
  /** The first problem; null if every part is healthy. */
  unhealthyReason(): Promise<string | null>
  close(): void
}

const MASTER_NAME = 'chaos'
const WATCH_EVERY_MS = 250
const WATCH_TIMEOUT_MS = 700
const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always', '--auto-aof-rewrite-percentage', '0']
const NODE_ARGS = [...DURABLE, '--enable-debug-command', 'local', '--repl-diskless-sync-delay', '0']

/** Starts the nodes and the network of each replica. */
export async function startRedisDeployment({
  t,
  mode,
  replicas,
  history,
  clock,
}: {
  t: Teardown
  mode: Mode
  replicas: number
  history: History
  clock: Clock
}): Promise<RedisDeployment> {
  const busLinks: Link[] = []
  const servers =
    mode === 'single'
      ? [await startRedis(t, { args: NODE_ARGS })]
      : mode === 'sentinel'
        ? await startPair(t)
        : await startCluster(t, busLinks)
  const nodes = servers.map((server, index): DataNode => {
    const admin = createAdmin(server.port)
    return { name: `${nodeWord(mode)} ${index + 1}`, server, admin, role: null, masterPort: null }
  })
  const sentinels =
    mode === 'sentinel'
      ? await startSentinels(t, servers[0]!.port, (text) => history.notes.push({ at: clock(), text }))
      : []
  const networks: Link[][] = []
  const urls: string[] = []
  for (let replica = 0; replica < replicas; replica += 1) {
    const { links, url } = await createNetwork(mode, servers, sentinels)
    networks.push(links)
    urls.push(url)
  }

  const watcher = watchRoles({ mode, nodes, sentinels, history, clock })
  await watcher.look()

  const masters = (): DataNode[] => {
    const named = watcher.namedMaster()
    return nodes.filter(({ role, server }) => role === 'master' && (named === null || server.port === named))
  }

  async function unhealthyReason(): Promise<string | null> {
    await watcher.look()
    const silent = nodes.find(({ role }) => role === null)
    if (silent !== undefined) return `${silent.name} does not reply`
    if (mode === 'single') return null
    const wanted = mode === 'sentinel' ? 1 : 3
    const count = nodes.filter(({ role }) => role === 'master').length
    if (count !== wanted) return `${count} masters instead of ${wanted}`
    for (const master of masters()) {
      const info = await master.admin.info('replication').catch(() => '')
      if (!/connected_slaves:[1-9][\s\S]*state=online/.test(info))
        return `${master.name} has no replica in sync`
    }
    if (mode === 'cluster') {
      for (const { admin, name } of nodes) {
        const info = String(await admin.call('cluster', 'info').catch(() => ''))
        if (!info.includes('cluster_state:ok')) return `${name} does not see a whole cluster`
      }
    }
    for (const { admin, name } of sentinels) {
      const state = String(await admin.call('sentinel', 'master', MASTER_NAME).catch(() => ''))
      if (state === '') return `${name} does not reply`
    }
    return null
  }

  async function findReadable(isSecret: (text: string) => boolean): Promise<number> {
    let found = 0
    for (const { admin } of masters()) {
      let cursor = '0'
      do {
        const [next, keys] = await admin
          .scan(cursor, 'COUNT', 200)
          .catch(() => ['0', []] as [string, string[]])
        cursor = next
        for (const key of keys) {
          const values = await admin.hgetall(key).catch(() => ({}))
          const texts = [key, ...Object.values<string>(values)]
          const hits = texts.flatMap((text) =>
            [...text.matchAll(TOKEN_OR_COOKIE)].filter(([match]) => isSecret(match)),
          )
          found += hits.length
        }
      } while (cursor !== '0')
    }
    return found
  }

  return {
    mode,
    nodes,
    sentinels,
    busLinks,
    urlFor: (replica) => urls[replica]!,
    linksOf: (replica) => networks[replica]!,
    masters,
    redisReplicaOf: (master) => nodes.find(({ masterPort }) => masterPort === master.server.port) ?? null,
    findReadable,
    unhealthyReason,
    close() {
      watcher.close()
      for (const { admin } of [...nodes, ...sentinels]) admin.disconnect()
      for (const link of [...networks.flat(), ...busLinks]) link.close()
    },
  }
}

function nodeWord(mode: Mode): string {
  return mode === 'cluster' ? 'node' : 'Redis'
}

/** A connection for commands of the chaos itself: fails fast, comes back by itself, resends nothing. */
function createAdmin(port: number): Redis {
  const admin = new Redis({
    ...{ host: '127.0.0.1', port, connectionName: 'chaos' },
    ...{ connectTimeout: 1_000, commandTimeout: 3_000, maxRetriesPerRequest: 0, enableReadyCheck: false },
    ...{ autoResendUnfulfilledCommands: false, retryStrategy: () => 200 },
  })
  admin.on('error', () => {})
  return admin
}

async function startPair(t: Teardown): Promise<RedisServer[]> {
  const master = await startRedis(t, { args: NODE_ARGS })
  const replica = await startRedis(t, { args: NODE_ARGS })
  // Not an argument, which would bring it back as a replica if it is restarted as the master.
  await replica.cli('replicaof', '127.0.0.1', String(master.port))
  await until('the replica is in sync', async () =>
    (await replica.cli('info', 'replication')).includes('master_link_status:up'),
  )
  return [master, replica]
}

async function startSentinels(
  t: Teardown,
  masterPort: number,
  onEvent: (text: string) => void,
): Promise<SentinelProcess[]> {
  const sentinels: SentinelProcess[] = []
  for (let index = 0; index < 3; index += 1) {
    const folder = makeFolder('sentinel')
    let file = ''
    const first = await startOnFreePort(t, (port) => {
      file = join(folder, `${port}.conf`)
      const lines = [
        ...[`port ${port}`, 'bind 127.0.0.1', `dir ${folder}`],
        `sentinel monitor ${MASTER_NAME} 127.0.0.1 ${masterPort} 2`,
        `sentinel down-after-milliseconds ${MASTER_NAME} 1000`,
        `sentinel failover-timeout ${MASTER_NAME} 5000`,
      ]
      writeFileSync(file, `${lines.join('\n')}\n`)
      return [file, '--sentinel']
    })
    const name = `Sentinel ${index + 1}`
    let child: Child = first.child
    watchEvents(child, (text) => onEvent(`${name}: ${text}`))
    sentinels.push({
      name,
      port: first.port,
      admin: createAdmin(first.port),
      isUp: () => !child.hasEnded(),
      kill: async () => void (await child.stop('SIGKILL')),
      // Its own file holds what it has learned meanwhile.
      async start() {
        child = startChild(t, toolPath('redis-server'), [file, '--sentinel'])
        watchEvents(child, (text) => onEvent(`${name}: ${text}`))
        await waitForOutput(child, (text) => (text.includes('Sentinel ID is') ? true : null))
      },
    })
  }
  for (const { admin } of sentinels) {
    await until('each sentinel knows the two others and the replica', async () => {
      const reply = (await admin.call('sentinel', 'master', MASTER_NAME).catch(() => [])) as string[]
      const member = (name: string) => reply[reply.indexOf(name) + 1]
      return member('num-other-sentinels') === '2' && member('num-slaves') === '1'
    })
  }
  return sentinels
}

/** Calls back with each event that a Sentinel writes to its log, such as `+switch-master …`. */
function watchEvents(child: Child, onEvent: (text: string) => void): void {
  let read = 0
  child.onOutput(() => {
    const output = child.output()
    const end = output.lastIndexOf('\n') + 1
    const lines = output.slice(read, end).split('\n')
    read = end
    for (const line of lines) {
      const event = / # ([+-].*)$/.exec(line)?.[1] ?? / \* ([+-](?:slave|convert|reboot).*)$/.exec(line)?.[1]
      if (event !== undefined) onEvent(event)
    }
  })
}

/** Three masters with a replica each. Every node announces a link in front of its bus port. */
async function startCluster(t: Teardown, busLinks: Link[]): Promise<RedisServer[]> {
  const servers: RedisServer[] = []
  for (let index = 0; index < 6; index += 1) {
    const busPort = await freePort()
    const bus = await startLink({ targetPort: busPort, port: await freePort() })
    busLinks.push(bus)
    const cluster = [
      ...['--cluster-enabled', 'yes', '--cluster-port', String(busPort)],
      ...['--cluster-announce-ip', '127.0.0.1', '--cluster-announce-bus-port', String(bus.port)],
      ...['--cluster-node-timeout', '2000'],
    ]
    servers.push(await startRedis(t, { args: [...NODE_ARGS, ...cluster] }))
  }
  const addresses = servers.map(({ port }) => `127.0.0.1:${port}`)
  const creation = startChild(t, toolPath('redis-cli'), [
    ...['--cluster', 'create', ...addresses, '--cluster-replicas', '1', '--cluster-yes'],
  ])
  await waitForOutput(creation, () => null, 60_000)
  if ((await creation.ended).code !== 0) throw new Error(`the cluster was not made:\n${creation.output()}`)
  for (const server of servers) {
    await until('each node sees the whole cluster', async () => {
      const info = await server.cli('cluster', 'info')
      return info.includes('cluster_state:ok') && info.includes('cluster_known_nodes:6')
    })
  }
  return servers
}

/** One link to each node and Sentinel; what announces addresses is rewritten so that it names these links. */
async function createNetwork(
  mode: Mode,
  servers: readonly RedisServer[],
  sentinels: readonly SentinelProcess[],
): Promise<{ links: Link[]; url: string }> {
  const targets = [...servers, ...sentinels].map(({ port }) => port)
  // Of five digits as the targets' are.
  const ports = new Map<number, number>()
  for (const target of targets) ports.set(target, await freePort())
  const translator = mode === 'single' ? {} : { translator: () => createPortTranslator(ports) }
  const links: Link[] = []
  for (const [targetPort, port] of ports) links.push(await startLink({ targetPort, port, ...translator }))
  const addressOf = (target: { port: number }) => `127.0.0.1:${ports.get(target.port)}`
  switch (mode) {
    case 'single':
      return { links, url: `redis://${addressOf(servers[0]!)}` }
    case 'sentinel':
      return { links, url: `redis-sentinel://${sentinels.map(addressOf).join(',')}/${MASTER_NAME}` }
    case 'cluster':
      return { links, url: `redis-cluster://${servers.map(addressOf).join(',')}` }
  }
}

/** Polls the role of every node and records promotions. */
function watchRoles({
  mode,
  nodes,
  sentinels,
  history,
  clock,
}: {
  mode: Mode
  nodes: readonly DataNode[]
  sentinels: readonly SentinelProcess[]
  history: History
  clock: Clock
}) {
  const known = new Map<DataNode, 'master' | 'slave'>()
  /** The master that a node followed when it was last seen as a replica. */
  const followed = new Map<DataNode, number>()
  let named: { port: number; epoch: number } | null = null
  let looking: Promise<void> | null = null

  async function read(node: DataNode): Promise<void> {
    const askedAt = clock()
    const info = await withTimeout(
      node.admin.info('replication').catch(() => null),
      WATCH_TIMEOUT_MS,
    )
    const ms = clock() - askedAt
    const disturbed = history.faults.some(
      (fault) =>
        fault.area === 'redis' && fault.replica === null && (fault.until ?? askedAt) >= askedAt - 500,
    )
    if (ms > 300 && !disturbed) history.delays.push({ at: clock(), replica: null, ms })
    if (info === null) {
      node.role = null
      return
    }
    const role = info.includes('role:master') ? 'master' : 'slave'
    const masterPort = Number(/master_port:(\d+)/.exec(info)?.[1] ?? 0)
    if (role === 'slave' && masterPort > 0) followed.set(node, masterPort)
    node.masterPort = info.includes('master_link_status:up') ? masterPort : null
    const before = known.get(node)
    known.set(node, role)
    node.role = role
    // A single Redis plays a replica while it is read-only.
    if (mode === 'single') return
    if (before === 'slave' && role === 'master') {
      const old = nodes.find(({ server }) => server.port === followed.get(node))
      if (old !== undefined) promoted(old, node)
    }
    if (before === 'master' && role === 'slave') superseded(node)
  }

  async function ask({ admin }: SentinelProcess): Promise<void> {
    const fields = await withTimeout(
      admin.call('sentinel', 'master', MASTER_NAME).catch(() => null),
      WATCH_TIMEOUT_MS,
    )
    if (!Array.isArray(fields)) return
    const member = (name: string): number => Number(fields[fields.indexOf(name) + 1])
    const next = { port: member('port'), epoch: member('config-epoch') }
    if (named !== null && next.epoch <= named.epoch) return
    const old = nodes.find(({ server }) => server.port === named?.port)
    const node = nodes.find(({ server }) => server.port === next.port)
    named = next
    if (old === undefined || node === undefined || old === node) return
    // One that has called itself a master all the time has not been seen to change.
    const seen = history.failovers.some(({ to, at }) => to === node.name && at > clock() - 10_000)
    if (!seen) promoted(old, node)
  }

  function promoted(old: DataNode, node: DataNode): void {
    const at = clock()
    const causes = history.faults.filter(
      (fault) => fault.node === old.name && fault.from < at && (fault.until ?? at) > at - 12_000,
    )
    const troubleSince = Math.min(at - 5_000, ...causes.map(({ from }) => from))
    const supersededUntil = known.get(old) === 'slave' ? at : null
    const failover: Failover = { at, troubleSince, from: old.name, to: node.name, supersededUntil }
    history.failovers.push(failover)
  }

  function superseded(node: DataNode): void {
    for (const failover of history.failovers) {
      if (failover.from === node.name) failover.supersededUntil ??= clock()
    }
  }

  async function look(): Promise<void> {
    looking ??= Promise.all([...nodes.map(read), ...sentinels.map(ask)]).then(() => {
      looking = null
    })
    await looking
  }

  const timer = setInterval(() => void look(), WATCH_EVERY_MS)
  return { look, namedMaster: () => named?.port ?? null, close: () => clearInterval(timer) }
}
