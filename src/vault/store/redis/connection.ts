import { once } from 'node:events'
import { Cluster, Command, Redis, type RedisOptions, ReplyError } from 'ioredis'
import type { RedisAddress, RedisTarget } from '../../../config/redis-url.ts'
import { messageOf } from '../../../log-text.ts'
import type { Secret } from '../../../secret.ts'
import { CONNECT_TIMEOUT_MS, ErrorHandlingConnector, type Sentinels, watchSentinels } from './sentinels.ts'

/** One server. Its members that the store uses, and their names, are those of ioredis. */
export type RedisServer = Redis

/** One server, or a Cluster. */
export type RedisClient = RedisServer | Cluster

type ConnectionOptions = Omit<RedisOptions, 'replyMapping'>

/**
 * ioredis asks the nodes of a Cluster one after the other, each over a new connection: a silent one must not delay a failover.
 * A Cluster that is so far away that none replies in time gets longer from try to try.
 */
const SLOTS_TIMEOUT_MS = 800
const SLOTS_TIMEOUT_MAX_MS = 3_200
export const RECONNECT_MAX_MS = 1_000
/** How often a server that still loads its data is asked. */
const LOADING_RETRY_MS = 500

export interface RedisClientOptions {
  target: RedisTarget
  /** PEM of the certificate authorities to trust; null: those of the system. */
  ca: string | null
  /** Presented to Redis where it asks for one (mutual TLS). */
  clientCertificate?: ClientCertificate | null
}

/** PEM of a certificate and of its private key. */
interface ClientCertificate {
  readonly certificate: string
  readonly key: Secret
}

type Trust = Pick<RedisClientOptions, 'ca' | 'clientCertificate'>

/** All connections of one store. They reconnect by themselves, without limit. */
export interface RedisConnections {
  readonly commands: RedisClient
  /** Calls back with each error that says why a connection failed. */
  onError(listener: (error: Error) => void): void
  close(): void
}

/**
 * Commands fail at once while there is no connection: nothing is queued and nothing is sent twice, since a
 * command that failed may have run. Only the client of a Cluster sends a command again if its connection broke, at
 * most six times. Every step of the store permits that; the end of a session that ran twice returns `gone`, so its tokens
 * are not revoked.
 */
export function openRedis({ target, ...trust }: RedisClientOptions): RedisConnections {
  const probes = new Set<Redis>()
  const sentinels = target.kind === 'sentinel' ? openSentinels(target, trust) : null
  const commands =
    target.kind === 'cluster'
      ? openCluster(target.nodes, dataOptions(target, trust, 'commands'))
      : openOne({
          ...dataOptions(target, trust, 'commands'),
          ...(target.kind === 'single'
            ? { reconnectOnError: createDemotionWatch(openProbe, reconnect) }
            : {}),
        })

  function openProbe(): Redis {
    return openOne({ ...dataOptions(target, trust, 'probe'), retryStrategy: () => null })
  }

  function reconnect(): void {
    commands.disconnect(true)
  }

  function openOne(common: ConnectionOptions, address?: RedisAddress): Redis {
    const client = new Redis({
      ...common,
      ...(target.kind === 'cluster' ? {} : { db: target.db }),
      ...(sentinels === null ? {} : { Connector: sentinels.Connector }),
      ...(target.kind === 'single' ? target.address : {}),
      ...address,
    })
    prepare(client)
    return client
  }

  return {
    commands,
    onError(listener) {
      const report = (error: Error): void => {
        if (reasonOf(error) !== CLOSED) listener(error)
      }
      commands.on('error', report)
      if (target.kind !== 'cluster') return
      commands.on('node error', report)
      // Before its first connection the client of a Cluster names no cause. A plain connection to a node does.
      const probe = openOne(dataOptions(target, trust, 'probe'), target.nodes[0])
      probe.on('error', report)
      probes.add(probe)
      commands.once('ready', () => probe.disconnect())
    },
    close() {
      sentinels?.close()
      for (const client of [commands, ...probes]) client.disconnect()
    },
  }
}

/** What ioredis says where it hides the cause. */
const CLOSED = 'Connection is closed.'
/** The shortest time from one probe to the next. */
const DEMOTION_PROBE_EVERY_MS = 1_000
/** A probe may have to try several addresses. */
const DEMOTION_PROBE_MAX_MS = 10_000

/**
 * To be called with each error reply. A server that was demoted keeps its connections, and the configured address may
 * lead to the new master by now: then `reconnect` is called. It probes on a separate connection, because a demoted
 * server that keeps its address can still be read. Returns false, so that ioredis itself does not reconnect.
 */
function createDemotionWatch(openProbe: () => Redis, reconnect: () => void): (error: Error) => false {
  let isProbing = false

  async function runProbe(): Promise<void> {
    const probe = openProbe()
    // A probe that reaches no server changes nothing.
    probe.on('error', () => {})
    setTimeout(() => {
      isProbing = false
    }, DEMOTION_PROBE_EVERY_MS).unref()
    const limit = setTimeout(() => probe.disconnect(), DEMOTION_PROBE_MAX_MS).unref()
    try {
      await once(probe, 'ready')
      if (/^role:master/m.test(await probe.info('replication'))) reconnect()
    } finally {
      clearTimeout(limit)
      probe.disconnect()
    }
  }

  return ({ message }) => {
    if (!isProbing && /(?:^|[\s-])READONLY\s/.test(message)) {
      isProbing = true
      runProbe().catch(() => {})
    }
    return false
  }
}

/** For servers with an address of their own. Sentinels name the address of a master (sentinels.ts). */
class DirectConnector extends ErrorHandlingConnector {
  readonly #options: RedisOptions

  constructor(options: unknown) {
    const given = options as RedisOptions
    super(given.disconnectTimeout ?? 0)
    this.#options = given
  }

  async connect() {
    this.connecting = true
    const { host = '', port = 0, family, tls = null } = this.#options
    return this.open({ host, port, family }, tls)
  }
}

function openCluster(nodes: readonly RedisAddress[], redisOptions: ConnectionOptions): Cluster {
  let beganAt = 0
  const cluster: Cluster = new Cluster([...nodes], {
    redisOptions,
    // The host name is kept: a certificate is checked against it, and the connection resolves it anyway.
    dnsLookup: (address, done) => done(null, address),
    clusterRetryStrategy(times) {
      cluster.options.slotsRefreshTimeout = Math.min(SLOTS_TIMEOUT_MAX_MS, SLOTS_TIMEOUT_MS * 2 ** times)
      return reconnectDelay(times)
    },
    enableOfflineQueue: false,
    slotsRefreshTimeout: SLOTS_TIMEOUT_MS,
    retryDelayOnFailover: 100,
    // Only `end-record` works on two keys. After a TRYAGAIN `end` in records.ts writes them one at a time.
    retryDelayOnTryAgain: 1,
    maxRedirections: 6,
  })
  cluster.on('connecting', () => {
    beganAt = performance.now()
  })
  cluster.on('ready', () => {
    // It was away, not far away.
    if (performance.now() - beganAt < SLOTS_TIMEOUT_MS) cluster.options.slotsRefreshTimeout = SLOTS_TIMEOUT_MS
  })
  // It has no connection of its own.
  cluster.on('+node', prepare)
  return cluster
}

function dataOptions(target: RedisTarget, trust: Trust, purpose: string) {
  const { username, password } = target.login
  return {
    ...commonOptions(target, trust, purpose),
    ...(username === null ? {} : { username }),
    ...(password === null ? {} : { password: password.reveal() }),
  }
}

function commonOptions(target: RedisTarget, trust: Trust, purpose: string) {
  return {
    ...(target.tls ? { tls: tlsOptions(trust) } : {}),
    Connector: DirectConnector,
    connectionName: `bff-${purpose}`,
    connectTimeout: CONNECT_TIMEOUT_MS,
    disconnectTimeout: 500,
    keepAlive: 10_000,
    // With 1 or more, commands that were under way would be sent again after a reconnect.
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    retryStrategy: reconnectDelay,
    // By default ioredis trusts the server's guess for up to ten seconds, and sends nothing meanwhile.
    maxLoadingRetryTime: LOADING_RETRY_MS,
    enableOfflineQueue: false,
  } satisfies RedisOptions
}

function openSentinels(target: Extract<RedisTarget, { kind: 'sentinel' }>, trust: Trust): Sentinels {
  const common = commonOptions(target, trust, 'sentinels')
  return watchSentinels({
    addresses: target.sentinels,
    masterName: target.master,
    connection: {
      ...common,
      autoResubscribe: false,
      ...(target.sentinelPassword === null ? {} : { password: target.sentinelPassword.reveal() }),
    },
    masterTls: target.tls ? tlsOptions(trust) : null,
    disconnectTimeoutMs: common.disconnectTimeout,
    watch: watchSilence,
  })
}

/** Explicit, so that NODE_TLS_REJECT_UNAUTHORIZED cannot switch the check off. */
function tlsOptions({ ca, clientCertificate = null }: Trust) {
  return {
    rejectUnauthorized: true,
    ...(ca === null ? {} : { ca }),
    ...(clientCertificate === null
      ? {}
      : { cert: clientCertificate.certificate, key: clientCertificate.key.reveal() }),
  }
}

function reconnectDelay(times: number): number {
  return Math.min(RECONNECT_MAX_MS, times * 50) * (0.75 + Math.random() / 2)
}

// What a client shows.

/** Whether the server itself has sent this error. */
export function isErrorReply(error: unknown): boolean {
  return error instanceof ReplyError
}

/** What a client's error says of the node that was tried last. */
export function reasonOf(
  error: Error & { code?: string; lastNodeError?: Error & { code?: string } },
): string {
  const last = error.lastNodeError ?? error
  return messageOf(last) || (last.code ?? 'no reply')
}

export function isCluster(client: RedisClient): boolean {
  return client instanceof Cluster
}

/** The masters of a Cluster that the client knows, or the one server. */
export function mastersOf(client: RedisClient): RedisServer[] {
  return client instanceof Cluster ? client.nodes('master') : [client]
}

const CLUSTER_SLOTS = 16_384

/** As `mastersOf`; null unless the client knows all. It omits those that it has lost, and all before it has read the slots. */
export function allMastersOf(client: RedisClient): RedisServer[] | null {
  const masters = mastersOf(client)
  if (!(client instanceof Cluster)) return masters
  const known = new Set(masters.map(({ options }) => `${options.host}:${options.port}`))
  for (let slot = 0; slot < CLUSTER_SLOTS; slot += 1) {
    const master = client.slots[slot]?.[0]
    if (master === undefined || !known.has(master)) return null
  }
  return masters
}

/**
 * Calls back when a connection of the client is established or an established one is lost, with the address of
 * its node as `nodeOf` has it. A node that stays unavailable is reported once, however often it is tried.
 */
export function onConnection(client: RedisClient, listener: (node: string) => void, node = ''): void {
  let isEstablished = false
  client.on('ready', () => {
    isEstablished = true
    listener(node)
  })
  client.on('close', () => {
    if (isEstablished) listener(node)
    isEstablished = false
  })
  if (!(client instanceof Cluster)) return
  client.on('+node', (one: Redis) => onConnection(one, listener, `${one.options.host}:${one.options.port}`))
}

/** In a Cluster the address of the master that has a Redis key, as far as the client knows; else, and without a key, ''. */
export function nodeOf(client: RedisClient, redisKey: string | null): string {
  if (!(client instanceof Cluster) || redisKey === null) return ''
  return client.slots[new Command('get', [redisKey]).getSlot()]?.[0] ?? ''
}

function prepare(client: Redis): void {
  watchSilence(client)
  writeByTurns(client)
  catchAsking(client)
  requireDatabase(client)
}

/** Where a slot of a Cluster moves, ioredis drops this promise: a node that gives no connection would end the process. */
function catchAsking(client: Redis): void {
  const { asking } = client
  client.asking = (...given: Parameters<typeof asking>) => {
    const asked = asking.apply(client, given)
    asked.catch(() => {})
    return asked
  }
}

/** Where the server refuses the database of the URL, ioredis would go on in database 0, which may be another application's. */
function requireDatabase(client: Redis): void {
  const { select } = client
  client.select = async (...given: Parameters<typeof select>) => {
    try {
      return await select.apply(client, given)
    } catch (error) {
      if (!isErrorReply(error)) throw error
      client.disconnect(true)
      throw new Error(`database ${given[0]} is refused: ${messageOf(error as Error)}`)
    }
  }
}

/**
 * Writes the commands of one turn of the event loop at once: each write costs more than the command. Unlike with the
 * automatic pipelines of ioredis, each command still fails alone.
 */
function writeByTurns(client: Redis): void {
  const { sendCommand } = client
  let held: Redis['stream'] | undefined
  client.sendCommand = (...command) => {
    const { stream } = client
    if (stream !== held) {
      stream?.cork()
      held = stream
      setImmediate(() => {
        stream?.uncork()
        if (held === stream) held = undefined
      })
    }
    return sendCommand.apply(client, command)
  }
}

export const LOOK_EVERY_MS = 400
/** Silent looks in a row before a connection is closed: a little more than two seconds. */
export const SILENT_LOOKS = 6

/**
 * Closes each connection of a server's client that owes a reply and receives nothing for two seconds: its peer may have
 * vanished. It counts looks, while ioredis' `socketTimeout` measures time: a process that was held up, or its whole
 * machine, makes one look and then reads what came meanwhile.
 */
function watchSilence(client: Redis): void {
  let before = ''
  let silent = 0

  function look(): void {
    const { stream, commandQueue } = client
    const received = `${stream?.localPort} ${stream?.bytesRead}`
    silent = commandQueue.length > 0 && received === before ? silent + 1 : 0
    before = received
    if (silent < SILENT_LOOKS) return
    silent = 0
    stream.destroy(new Error('no reply for two seconds'))
  }

  const timer = setInterval(look, LOOK_EVERY_MS).unref()
  client.once('end', () => clearInterval(timer))
}
