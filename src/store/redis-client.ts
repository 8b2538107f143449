import type { RedisOptions } from 'ioredis'
import { Cluster, Command, Redis } from 'ioredis'
import type { RedisAddress, RedisTarget } from '../config.ts'
import { messageOf } from '../log.ts'
import { watchSilence } from './silence.ts'

export type RedisClient = Redis | Cluster

const CONNECT_TIMEOUT_MS = 2_000
/** The nodes of a Cluster are asked one after the other, and one that is silent must not hold up a failover. */
const SLOTS_TIMEOUT_MS = 800
const RECONNECT_MAX_MS = 1_000

export interface RedisClientOptions {
  target: RedisTarget
  /** PEM of the certificate authorities to trust; null: those of the system. */
  ca: string | null
}

/**
 * The client for commands. It connects by itself, for ever, and fails commands at once while it is
 * not connected: nothing is queued and nothing is sent twice, since a command that failed may have run. A
 * Cluster's does send one again whose connection broke, six times at most, also when nobody waits for it
 * any more: every step of the store bears that.
 */
export function createCommandClient({ target, ca }: RedisClientOptions): RedisClient {
  const common = commonOptions(target, ca, 'commands')
  if (target.kind !== 'cluster') return createOneConnection(target, ca, common)
  const cluster = new Cluster([...target.nodes], {
    redisOptions: common,
    clusterRetryStrategy: reconnectDelay,
    enableOfflineQueue: false,
    slotsRefreshTimeout: SLOTS_TIMEOUT_MS,
    retryDelayOnFailover: 100,
    maxRedirections: 6,
  })
  cluster.on('+node', hearEveryError)
  watchSilence(cluster)
  return cluster
}

/**
 * The client for messages, always one connection. What it has subscribed to is not subscribed to again
 * when it reconnects: whoever uses it does so each time that it is ready.
 *
 * In a Cluster it goes to one node after the other until one answers; a message that is published on
 * any node reaches all. The library's own subscriber for a Cluster does not say when it was cut off.
 */
export function createMessageClient({ target, ca }: RedisClientOptions, commands: RedisClient): Redis {
  // Subscribing again, the library leaves a failure to nobody, and forgets the channels after it.
  const common = { ...commonOptions(target, ca, 'messages'), autoResubscribe: false }
  if (target.kind !== 'cluster') return createOneConnection(target, ca, common)
  let turn = Math.floor(Math.random() * target.nodes.length)
  const nextNode = (): RedisAddress => {
    const known = commands instanceof Cluster ? commands.nodes().map(({ options }) => options) : []
    const nodes = known.length > 0 ? known : target.nodes
    turn += 1
    const { host, port } = nodes[turn % nodes.length]!
    return { host: host!, port: port! }
  }
  const client: Redis = new Redis({
    ...common,
    ...nextNode(),
    retryStrategy(times) {
      Object.assign(client.options, nextNode())
      return reconnectDelay(times)
    },
  })
  watchSilence(client)
  return hearEveryError(client)
}

/**
 * The library listens for one error of a socket. A TLS handshake that is broken off makes two, and the
 * second would end the process.
 */
function hearEveryError(client: Redis): Redis {
  const listen = (): void => void client.stream?.on('error', () => {})
  client.on('connecting', () => setImmediate(listen))
  return client
}

/** Ends the connections of a client for good. */
export function disconnect(client: RedisClient): void {
  // Through Sentinels the socket may be younger than its client thinks.
  if (client instanceof Redis) client.stream?.on('error', () => {})
  client.disconnect()
}

/** What a client's error says of the node that was tried last. */
export function reasonOf(
  error: Error & { code?: string; lastNodeError?: Error & { code?: string } },
): string {
  const last = error.lastNodeError ?? error
  const { code = 'no answer' } = last
  const message = messageOf(last)
  // The library's own sentence holds its next delay, and would be another one each time.
  const sentinels = /^All sentinels are unreachable.*?(?:Last error: (.*))?$/.exec(message)
  if (sentinels !== null) return `no Sentinel can be reached: ${sentinels[1] ?? code}`
  return message || code
}

/** Whether there is a connection to the server, or to any node of a Cluster. */
export function isConnected(client: RedisClient): boolean {
  const connections = client instanceof Cluster ? client.nodes() : [client]
  // One whose other end has closed it cannot be written to some time before the library calls it closed.
  return connections.some(({ status, stream }) => status === 'ready' && stream.writable)
}

/**
 * Calls back when a connection of the client is made, or one that stood is lost, with the address of
 * its node as `nodeOf` has it. A node that stays away is told once, however often it is tried.
 */
export function onConnection(client: RedisClient, listener: (node: string) => void, node = ''): void {
  let stands = false
  client.on('ready', () => {
    stands = true
    listener(node)
  })
  client.on('close', () => {
    if (stands) listener(node)
    stands = false
  })
  if (!(client instanceof Cluster)) return
  client.on('+node', (one: Redis) => onConnection(one, listener, `${one.options.host}:${one.options.port}`))
}

/** The address of the master that a key is on as far as the client of a Cluster knows, '' elsewhere. */
export function nodeOf(client: RedisClient, key: string): string {
  if (!(client instanceof Cluster)) return ''
  return client.slots[new Command('get', [key]).getSlot()]?.[0] ?? ''
}

function commonOptions(target: RedisTarget, ca: string | null, purpose: string) {
  return {
    ...(target.tls ? { tls: tlsOptions(ca) } : {}),
    ...(target.login.username === null ? {} : { username: target.login.username }),
    ...(target.login.password === null ? {} : { password: target.login.password.reveal() }),
    connectionName: `bff-${purpose}`,
    connectTimeout: CONNECT_TIMEOUT_MS,
    disconnectTimeout: 500,
    keepAlive: 10_000,
    // Not 1 or more: commands that were under way would be sent again after a reconnect.
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    retryStrategy: reconnectDelay,
    enableOfflineQueue: false,
  } satisfies RedisOptions
}

function createOneConnection(
  target: Exclude<RedisTarget, { kind: 'cluster' }>,
  ca: string | null,
  common: ReturnType<typeof commonOptions> & Pick<RedisOptions, 'autoResubscribe'>,
): Redis {
  const client = openOneConnection(target, ca, common)
  watchSilence(client)
  return client
}

function openOneConnection(...[target, ca, common]: Parameters<typeof createOneConnection>): Redis {
  switch (target.kind) {
    case 'single':
      return hearEveryError(
        new Redis({ ...common, host: target.address.host, port: target.address.port, db: target.db }),
      )
    case 'sentinel':
      return new Redis({
        ...common,
        sentinels: target.sentinels.map(({ host, port }) => ({ host, port })),
        name: target.master,
        db: target.db,
        sentinelRetryStrategy: reconnectDelay,
        ...(target.sentinelPassword === null ? {} : { sentinelPassword: target.sentinelPassword.reveal() }),
        ...(target.tls ? { enableTLSForSentinelMode: true, sentinelTLS: tlsOptions(ca) } : {}),
      })
  }
}

/** Said here, so that no environment variable of Node switches the check off. */
function tlsOptions(ca: string | null) {
  return { rejectUnauthorized: true, ...(ca === null ? {} : { ca }) }
}

function reconnectDelay(times: number): number {
  return Math.min(RECONNECT_MAX_MS, times * 50) * (0.75 + Math.random() / 2)
}
