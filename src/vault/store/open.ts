import type { Clock } from '../../clock.ts'
import type { Config } from '../../config/config.ts'
import type { Logger } from '../../log.ts'
import { withTimeout } from '../../timeout.ts'
import { createMemoryStore } from './memory/store.ts'
import type { StoreFinding } from './redis/deployment-findings.ts'
import { createRedisStore, type RedisStoreOptions } from './redis/store.ts'
import type { SessionStore } from './store.ts'
import { whenConnected } from './when-connected.ts'

interface StoreEvents {
  /** Redis refuses the credentials or the database. */
  onRefused: (message: string) => void
  onFinding: (finding: StoreFinding) => void
  /** A command ended. */
  onCommand: (command: string, seconds: number, ok: boolean) => void
}

/** Longest wait of a start for the store. */
const START_WAIT_MS = 1_000

/**
 * The store as the configuration names it. `tried` resolves as soon as it is connected, at the latest after one second.
 */
export function openStore(
  config: Pick<Config, 'store' | 'session'>,
  { clock, log }: { clock: Clock; log: Logger },
  { onRefused, onFinding, onCommand: observe }: StoreEvents,
): { store: SessionStore; tried: () => Promise<void> } {
  const idleMs = config.session.idleSeconds * 1_000
  if (config.store.kind === 'memory')
    return { store: createMemoryStore({ now: clock.wall, idleMs }), tried: async () => {} }
  const store = createRedisStore({
    ...config.store,
    idleMs,
    onRefused,
    onUnreachable: (reason) =>
      log.warn(
        { event: 'store.unreachable', reason },
        'no connection to Redis: check REDIS_URL, and with TLS REDIS_CA_FILE',
      ),
    onReachable: () => log.info({ event: 'store.reachable' }, 'connected to Redis'),
    onFinding,
    observe,
  })
  async function tried(): Promise<void> {
    await withTimeout(
      whenConnected(store.ping, START_WAIT_MS).catch(() => {}),
      START_WAIT_MS,
    )
  }
  return { store, tried }
}

/**
 * For the operator's commands: a store that answers. Rejects with an error for the terminal where Redis refuses the
 * credentials, or does not answer in time.
 */
export async function connectRedis(
  settings: Omit<RedisStoreOptions, 'onRefused' | 'onUnreachable' | 'onReachable' | 'onFinding' | 'observe'>,
  withinMs: number,
): Promise<SessionStore> {
  let refused: string | null = null
  let reason = 'no answer'
  const store = createRedisStore({
    ...settings,
    onRefused: (message) => {
      refused = message
    },
    onUnreachable: (why) => {
      reason = why
    },
    onReachable() {},
    observe() {},
  })
  try {
    await whenConnected(store.ping, withinMs, () => refused !== null)
    return store
  } catch {
    await store.close()
    throw new Error(
      refused === null
        ? `Redis cannot be reached (${reason}): check REDIS_URL.`
        : `Redis refused the credentials or the database (${refused}): check REDIS_URL.`,
    )
  }
}
