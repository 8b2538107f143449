import { withTimeout } from '../../src/timeout.ts'
import { startChild, type Teardown, toolPath } from '../../test/helpers/child.ts'
import { type RedisServer, startRedis } from '../../test/helpers/redis.ts'
import {
  type RedisCluster,
  type SentinelGroup,
  startCluster,
  startSentinelGroup,
} from '../../test/helpers/redis-groups.ts'
import { type TcpProxy as Link, startProxy } from '../../test/helpers/tcp-proxy.ts'
import type { Clock, History, Mode } from './history.ts'

/** A server that takes writes, and a replica that has its data; null where it runs alone. */
export interface Shard {
  readonly master: RedisServer
  readonly replica: RedisServer | null
}

/** Redis as one mode runs it, with a network of its own for each replica of the server. */
export interface RedisUnderTest {
  readonly group: SentinelGroup | null
  readonly cluster: RedisCluster | null
  /** `REDIS_URL` of this replica. */
  urlFor(replica: number): string
  /** The network between this replica and Redis. */
  linksOf(replica: number): readonly Link[]
  /** The shards whose master can be lost: with it goes no more than its last moment. */
  shards(): Promise<Shard[]>
  /** Null if every part is healthy. */
  problem(): Promise<string | null>
}

/** What was acknowledged survives a kill. */
const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always', '--auto-aof-rewrite-percentage', '0']
const WATCH_EVERY_MS = 250
const WATCH_TIMEOUT_MS = 700
/** What is done to a master may make its replica take over until so long afterwards. */
const PROMOTED_WITHIN_MS = 12_000

interface Options {
  mode: Mode
  /** Of the server. */
  replicas: number
  history: History
  clock: Clock
}

/** Starts the nodes and the network of each replica, and records each failover until the campaign ends. */
export async function startRedisUnderTest(t: Teardown, options: Options): Promise<RedisUnderTest> {
  const { mode, history, clock } = options
  const args = DURABLE
  const group = mode === 'sentinel' ? await startSentinelGroup(t, { args }) : null
  const cluster = mode === 'cluster' ? await startCluster(t, { replicas: 1, args }) : null
  const nodes =
    group !== null
      ? [group.master, group.replica]
      : cluster !== null
        ? cluster.nodes
        : [await startRedis(t, { args })]
  const entrances = group === null ? nodes.map(({ port }) => port) : group.sentinelPorts
  const networks: { links: Link[]; url: string }[] = []
  for (let replica = 0; replica < options.replicas; replica += 1) networks.push(await createNetwork())
  watchFailovers()

  /** A link to each node and Sentinel. The addresses that they announce are rewritten, so that they lead to the links. */
  async function createNetwork(): Promise<{ links: Link[]; url: string }> {
    const linkPorts = new Map<number, number>()
    const links: Link[] = []
    for (const port of new Set([...nodes.map(({ port }) => port), ...entrances])) {
      const link = await startProxy(t, port, (data) => withPorts(data, linkPorts))
      linkPorts.set(port, link.port)
      links.push(link)
    }
    const hosts = entrances.map((port) => `127.0.0.1:${linkPorts.get(port)}`).join(',')
    const urls = {
      single: `redis://${hosts}`,
      sentinel: `redis-sentinel://${hosts}/mymaster`,
      cluster: `redis-cluster://${hosts}`,
    }
    return { links, url: urls[mode] }
  }

  /** Null where it does not reply. */
  async function ask(node: RedisServer, ...command: string[]): Promise<string | null> {
    return await withTimeout(
      node.cli(...command).catch(() => null),
      WATCH_TIMEOUT_MS,
    )
  }

  async function shards(): Promise<Shard[]> {
    const found: Shard[] = []
    for (const master of nodes) {
      const info = (await ask(master, 'info', 'replication')) ?? ''
      if (!info.includes('role:master')) continue
      const port = Number(/port=(\d+),state=online/.exec(info)?.[1])
      const replica = nodes.find((node) => node.port === port) ?? null
      if (replica !== null || mode === 'single') found.push({ master, replica })
    }
    return found
  }

  async function problem(): Promise<string | null> {
    const wanted = mode === 'cluster' ? 3 : 1
    const { length } = await shards()
    if (length !== wanted) return `${length} masters with a replica in sync instead of ${wanted}`
    if (cluster === null) return null
    for (const node of nodes) {
      const state = (await ask(node, 'cluster', 'info')) ?? ''
      if (!state.includes('cluster_state:ok')) return `a node does not see a whole cluster`
    }
    return null
  }

  /** Polls the role of every node and records promotions. */
  function watchFailovers(): void {
    if (mode === 'single') return
    const isReplica = new Set<RedisServer>()
    const look = async (node: RedisServer): Promise<void> => {
      const info = await ask(node, 'info', 'replication')
      if (info === null) return
      if (info.includes('role:slave')) isReplica.add(node)
      else if (isReplica.delete(node)) {
        const at = clock()
        const causes = history.faults.filter(
          ({ strikes, until }) => strikes === 'Redis' && (until ?? at) > at - PROMOTED_WITHIN_MS,
        )
        const troubleSince = Math.min(at - 5_000, ...causes.map(({ from }) => from))
        history.failovers.push({ at, troubleSince, to: `Redis ${nodes.indexOf(node) + 1}` })
      }
    }
    let looking = false
    const timer = setInterval(async () => {
      if (looking) return
      looking = true
      await Promise.all(nodes.map(look))
      looking = false
    }, WATCH_EVERY_MS)
    t.teardown(() => clearInterval(timer))
  }

  return {
    group,
    cluster,
    urlFor: (replica) => networks[replica]!.url,
    linksOf: (replica) => networks[replica]!.links,
    shards,
    problem,
  }
}

/** An address in a reply of Redis or of a Sentinel, in each of the forms in which they write one. */
const ADDRESS =
  /((?:127\.0\.0\.1(?:[: ,]|\r\n\$5\r\n|\r\n:))|(?:\bport\r\n(?:\$5\r\n|:))|(?:_port:))(\d{5})(?!\d)/g

/**
 * The reply with other ports. All have five digits, so the lengths in the protocol stay right. An address whose parts
 * arrive apart is left as it is: that connection goes past the link, and its faults spare it.
 */
export function withPorts(reply: Buffer, ports: ReadonlyMap<number, number>): Buffer {
  if (!reply.includes('127.0.0.1') && !reply.includes('port')) return reply
  const text = reply.toString('latin1').replace(ADDRESS, (all, front: string, port: string) => {
    const link = ports.get(Number(port))
    return link === undefined ? all : `${front}${link}`
  })
  return Buffer.from(text, 'latin1')
}

/** Ends a slot's move that a failover has left half done. */
export async function repairSlots(t: Teardown, cluster: RedisCluster): Promise<void> {
  const address = `127.0.0.1:${cluster.nodes[0]!.port}`
  await startChild(t, toolPath('redis-cli'), ['--cluster', 'fix', address]).ended
}
