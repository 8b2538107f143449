import { once } from 'node:events'
import { Cluster, Redis, type RedisOptions } from 'ioredis'
import type { RedisAddress, RedisTarget } from '../../config/redis-url.ts'
import type { Secret } from '../../secret.ts'
import { ErrorHandlingConnector } from './connector.ts'
import { type RedisClient, reasonOf } from './health.ts'
import { type Sentinels, watchSentinels } from './sentinels.ts'
import { watchSilence } from './silence.ts'

type ConnectionOptions = Omit<RedisOptions, 'replyMapping'>

export const CONNECT_TIMEOUT_MS = 2_000
/** ioredis asks the nodes of a Cluster one after the other: a silent one must not delay a failover. */
const SLOTS_TIMEOUT_MS = 800
export const RECONNECT_MAX_MS = 1_000
/** How often a server that still loads its data is asked. */
const LOADING_RETRY_MS = 500

interface RedisClientOptions {
  target: RedisTarget
  /** PEM of the certificate authorities to trust; null: those of the system. */
  ca: string | null
  /** Presented to Redis where it asks for one (mutual TLS). */
  clientCertificate?: ClientCertificate | null
}

/** PEM of a certificate and of its private key. */
export interface ClientCertificate {
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
    watchSilence(client)
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
/** Time limit of a probe, and the shortest time from one probe to the next. */
const DEMOTION_PROBE_MS = 1_000

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
      probe.disconnect()
    }, DEMOTION_PROBE_MS).unref()
    await once(probe, 'ready')
    if (/^role:master/m.test(await probe.info('replication'))) reconnect()
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
class TlsConnector extends ErrorHandlingConnector {
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
  const cluster = new Cluster([...nodes], {
    redisOptions,
    // The host name is kept: a certificate is checked against it, and the connection resolves it anyway.
    dnsLookup: (address, done) => done(null, address),
    clusterRetryStrategy: reconnectDelay,
    enableOfflineQueue: false,
    slotsRefreshTimeout: SLOTS_TIMEOUT_MS,
    retryDelayOnFailover: 100,
    // Only `end-record` works on two keys. After a TRYAGAIN `end` in records.ts writes them one at a time.
    retryDelayOnTryAgain: 1,
    maxRedirections: 6,
  })
  watchSilence(cluster)
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
    ...(target.tls ? { tls: tlsOptions(trust), Connector: TlsConnector } : {}),
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
