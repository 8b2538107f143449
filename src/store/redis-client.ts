import type { ClusterOptions, RedisOptions } from 'ioredis'
import { Cluster, Redis } from 'ioredis'
import type { RedisTarget } from '../config.ts'

export type RedisClient = Redis | Cluster

/** A request must be told within a second that the store does not answer. */
const COMMAND_TIMEOUT_MS = 800
const CONNECT_TIMEOUT_MS = 2_000
const RECONNECT_MAX_MS = 1_000

export interface RedisClientOptions {
  target: RedisTarget
  /** PEM of the certificate authorities to trust; null: those of the system. */
  ca: string | null
  purpose: 'commands' | 'messages'
}

/**
 * A client that connects by itself, for ever, and fails commands at once while it is not connected:
 * nothing is queued and nothing is sent twice, since a command that failed may have run.
 */
export function createRedisClient({ target, ca, purpose }: RedisClientOptions): RedisClient {
  const tls = target.tls ? { tls: ca === null ? {} : { ca } } : {}
  const common = {
    ...tls,
    ...(target.login.username === null ? {} : { username: target.login.username }),
    ...(target.login.password === null ? {} : { password: target.login.password.reveal() }),
    connectionName: `bff-${purpose}`,
    connectTimeout: CONNECT_TIMEOUT_MS,
    keepAlive: 10_000,
    // Not 1 or more: commands that were under way would be sent again after a reconnect.
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    retryStrategy: reconnectDelay,
    // The subscriber resubscribes through its queue once it is connected again.
    enableOfflineQueue: purpose === 'messages',
    ...(purpose === 'commands' ? { commandTimeout: COMMAND_TIMEOUT_MS } : {}),
  } satisfies RedisOptions
  switch (target.kind) {
    case 'single':
      return new Redis({ ...common, host: target.address.host, port: target.address.port, db: target.db })
    case 'sentinel':
      return new Redis({
        ...common,
        sentinels: target.sentinels.map(({ host, port }) => ({ host, port })),
        name: target.master,
        db: target.db,
        sentinelRetryStrategy: reconnectDelay,
        ...(target.sentinelPassword === null ? {} : { sentinelPassword: target.sentinelPassword.reveal() }),
        ...(target.tls ? { enableTLSForSentinelMode: true, sentinelTLS: ca === null ? {} : { ca } } : {}),
      })
    case 'cluster': {
      const options = {
        redisOptions: common,
        clusterRetryStrategy: reconnectDelay,
        enableOfflineQueue: purpose === 'messages',
        slotsRefreshTimeout: CONNECT_TIMEOUT_MS,
        retryDelayOnFailover: 100,
        maxRedirections: 6,
      } satisfies ClusterOptions
      return new Cluster(
        target.nodes.map(({ host, port }) => ({ host, port })),
        options,
      )
    }
  }
}

function reconnectDelay(times: number): number {
  return Math.min(RECONNECT_MAX_MS, times * 50) * (0.75 + Math.random() / 2)
}
