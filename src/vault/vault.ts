import { setTimeout as pause } from 'node:timers/promises'
import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { SessionCookies } from '../http/cookies.ts'
import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import { PATHS } from '../paths.ts'
import { type Binding, createBinding } from './binding.ts'
import { createSessionCache } from './cache.ts'
import { type Caller, type Callers, createCallers } from './caller.ts'
import { createEndSession, createSessions, logEnded, type Sessions } from './lifecycle.ts'
import type { Refresh, RefreshEvents } from './refresh/refresh.ts'
import { createRevoker, type Revoker } from './refresh/revoker.ts'
import { createTokens, type Tokens } from './refresh/tokens.ts'
import type { EndReason } from './session.ts'
import { createMemoryStore } from './store/memory/store.ts'
import { createOutbox, type OutboxStore } from './store/outbox.ts'
import type { WriteKind } from './store/outbox-entries.ts'
import type { DeviceStore, RecordKey, RecordStore } from './store/record.ts'
import type { StoreFinding } from './store/redis/deployment-findings.ts'
import { createRedisStore, type RedisStoreOptions } from './store/redis/store.ts'
import { reportWrites } from './store/report-writes.ts'
import { inLog, type NonceStore, type SessionStore, type TryStore } from './store/store.ts'
import { whenConnected } from './store/when-connected.ts'

// The words of the vault that other folders use. They import this file alone (test/repository/imports.test.ts).
export {
  type Binding,
  COOKIE_SECONDS,
  DEVICE,
  DEVICE_REFRESHES,
  type DeviceRefresh,
  deviceProblem,
  FIRST_COOKIE_SECONDS,
} from './binding.ts'
export { type Caller, type CallerSource, type Callers, waitProblem } from './caller.ts'
export type { NewSession } from './lifecycle.ts'
export { createGate } from './refresh/gate.ts'
export type { Refresh, RefreshEvents, RefreshResult, RefreshTrigger } from './refresh/refresh.ts'
export { neededAt, type RefreshTiming, type Wait } from './refresh/rules.ts'
export { openTokens, sealTokens } from './sealed-tokens.ts'
export {
  END_REASONS,
  type EndReason,
  type Found,
  type LiveSession,
  NO_COOKIE,
  notLiveProblem,
  passedLimit,
} from './session.ts'
export type { WriteKind } from './store/outbox-entries.ts'
export { CLOCK_TOLERANCE_MS, type RecordKey, type SessionRecord } from './store/record.ts'
export type { StoreFinding } from './store/redis/deployment-findings.ts'
export { NO_WRITES } from './store/redis/health.ts'
export { inspectRedis } from './store/redis/inspect.ts'
export { inLog, type SessionStore, StoreUnavailable } from './store/store.ts'
export type { Identify, User } from './user.ts'

/**
 * Everything that this server knows of sessions and their tokens: the one object that the other folders use. A store
 * that fails is a rejection with `StoreUnavailable`. What it is made of, and what each part decides, is in docs/architecture.md.
 */
export interface Vault extends Callers, Pick<NonceStore, 'claimNonce'>, TryStore {
  /** Creates a provisional session, which lives for 15 s unless it is confirmed. */
  begin: Sessions['create']
  confirm: RecordStore['confirm']
  abandon: Sessions['abandon']
  /** What a look at a session shows; ends it where it has passed a limit. `request`: the one that asks, for the log. */
  look: Sessions['find']
  /** The browser of this session is active now; false where there is none. Checks no limit: `look` first. */
  stay: Sessions['touch']
  end: Sessions['end']
  revoke: Revoker['revoke']
  /** null: sessions are not bound to devices. */
  devices: Devices | null
  /** The session that a `Cookie` header names by a good signature, as the log calls it. Waits for nothing. */
  inLog(header: string | undefined): string | null
  /** Rejects while records cannot be read. A store that only refuses writes passes. */
  requireReads(): Promise<void>
  /** Rejects unless the store takes writes. */
  ping(): Promise<void>
  readonly gauges: Gauges
  /** Starts the background refreshes. */
  start: Tokens['start']
  beginStop: Tokens['beginStop']
  /** As `Tokens.stop`. The store stays open: who has opened it closes it. */
  stop: Tokens['stop']
}

/** The devices of bound sessions: what the server issues and accepts, and the records that keep it. */
export interface Devices extends Binding, DeviceStore {
  /** The key that a session has registered; null where there is no session, or none with a device. */
  registered(key: RecordKey): Promise<string | null>
}

/** What a process can say of its work now. */
export interface Gauges {
  /** Sessions with refreshed tokens that the store has not taken. */
  unsaved(): number
  /** Token requests that failed in a row. */
  consecutiveFailures(): number
  /** Sessions in the due queue; null when the store does not answer. */
  due(): Promise<number | null>
  takesWrites(): Promise<boolean>
}

/** What happens to sessions, to be counted. */
export interface VaultEvents extends RefreshEvents {
  ended(reason: EndReason): void
  /** A lookup of a caller; `revalidated`: a small read has proven what was known. */
  cache(result: 'hit' | 'revalidated' | 'miss'): void
  /** A write to the store was tried again. */
  retried(write: WriteKind): void
  /** A write that the store had lost was made again. */
  restored(write: 'tokens' | 'end'): void
}

export interface VaultOptions {
  config: Pick<Config, 'session' | 'refresh' | 'publicUrl' | 'shutdownSeconds'> & {
    oauth: Pick<Config['oauth'], 'clientId' | 'tokenTimeoutMs'>
  }
  store: SessionStore
  authorizationServer: Pick<AuthorizationServer, 'refresh' | 'revoke'>
  keyring: Keyring
  cookies: Pick<SessionCookies, 'read' | 'verify' | 'readDevice'>
  clock: Clock
  /** In [0, 1). */
  random: () => number
  log: Logger
  observe: {
    events: VaultEvents
    /** Surrounds each refresh, for example with a span. */
    wrapRefresh?: ((inner: Refresh) => Refresh) | undefined
  }
}

/** Sessions that one process remembers at most. */
const CACHED_SESSIONS = 20_000
const NO_RECORD = '0'.repeat(64)

/** Makes every part of the vault over this store. Nothing runs in the background before `start`. */
export function createVault(options: VaultOptions): Vault {
  const { config, authorizationServer, keyring, cookies, clock, random, log } = options
  const { publicUrl, oauth, refresh: timing } = config
  const { events, wrapRefresh } = options.observe
  const idleMs = config.session.idleSeconds * 1_000
  const trustMs = config.session.cacheMs

  const cache = createSessionCache<Caller>({ max: CACHED_SESSIONS, trustMs, monotonic: clock.monotonic })
  // Two wrappers around the store: one keeps the cache true, the other tries writes again.
  const reported = reportWrites(options.store, { onTouched: cache.distrust, onChanged: cache.drop })
  const { retried: onRetried, restored: onRestored } = events
  const store = createOutbox({ store: reported, clock, log, onRetried, onRestored })

  const paths = { register: PATHS.device, refresh: PATHS.deviceRefresh }
  const binding = config.session.isBound
    ? createBinding({ keyring, publicUrl, paths, now: clock.wall })
    : null
  const revoker = createRevoker({ authorizationServer, log, clock })
  const sessions = createSessions({
    store,
    keyring,
    clock,
    log,
    idleMs,
    maxMs: config.session.maxSeconds * 1_000,
    clientId: oauth.clientId,
    // A new session is scheduled, and a refresh may end a session: each needs the other.
    schedule: (...session) => tokens.schedule(...session),
    revoke: revoker.revoke,
    onEnded: ({ reason }) => events.ended(reason),
  })
  const tokens = createTokens({
    store,
    clock,
    log,
    sessions,
    authorizationServer,
    revoker,
    pace: {
      timing,
      concurrency: timing.concurrency,
      timeoutMs: oauth.tokenTimeoutMs,
      reuseMs: timing.reuseSeconds * 1_000,
      shutdownMs: config.shutdownSeconds * 1_000,
      random,
    },
    observe: { events, wrapRefresh },
  })
  const observe = events.cache
  const callers = createCallers({
    ...{ cookies, binding, cache, trustMs, sessions, tokens, timing, idleMs, clock, observe },
  })

  return {
    ...callers,
    begin: sessions.create,
    confirm: store.confirm,
    abandon: sessions.abandon,
    look: sessions.find,
    stay: sessions.touch,
    end: sessions.end,
    revoke: revoker.revoke,
    devices: binding === null ? null : devicesOf(binding, store),
    claimNonce: store.claimNonce,
    countTry: store.countTry,
    inLog(header) {
      const cookie = cookies.read(header)
      if (cookie === null) return null
      // To verify one again would cost more than its line.
      const key = cache.keyOf(cookie) ?? cookies.verify(cookie)?.recordKey
      return key === undefined ? null : inLog(key)
    },
    requireReads: async () => void (await store.read(NO_RECORD)),
    ping: store.ping,
    gauges: {
      unsaved: store.pendingTokens,
      consecutiveFailures: tokens.consecutiveFailures,
      due: () => store.queueLength().catch(() => null),
      takesWrites: () =>
        store.ping().then(
          () => true,
          () => false,
        ),
    },
    start: tokens.start,
    beginStop: tokens.beginStop,
    stop: tokens.stop,
  }
}

function devicesOf(binding: Binding, { registerDevice, bindDevice, read }: OutboxStore): Devices {
  return {
    ...binding,
    registerDevice,
    bindDevice,
    registered: async (key) => (await read(key))?.device || null,
  }
}

interface StoreEvents {
  /** Redis refuses the credentials. */
  onRefused: (message: string) => void
  onFinding: (finding: StoreFinding) => void
  /** A command ended. */
  onCommand: (command: string, seconds: number, ok: boolean) => void
}

/** Longest wait of a start for the store. */
const STORE_WAIT_MS = 1_000

/**
 * The store as the configuration names it. `tried` resolves as soon as it is connected or known to be unreachable, at
 * the latest after one second.
 */
export function openStore(
  config: Pick<Config, 'store' | 'session'>,
  { clock, log }: { clock: Clock; log: Logger },
  { onRefused, onFinding, onCommand: observe }: StoreEvents,
): { store: SessionStore; tried: () => Promise<void> } {
  const idleMs = config.session.idleSeconds * 1_000
  if (config.store.kind === 'memory')
    return { store: createMemoryStore({ now: clock.wall, idleMs }), tried: async () => {} }
  let noteUnreachable = (): void => {}
  const unreachable = new Promise<void>((resolve) => {
    noteUnreachable = resolve
  })
  const store = createRedisStore({
    ...config.store,
    idleMs,
    onRefused,
    onUnreachable(reason) {
      noteUnreachable()
      log.warn(
        { event: 'store.unreachable', reason },
        'no connection to Redis: check REDIS_URL, and with TLS REDIS_CA_FILE',
      )
    },
    onReachable: () => log.info({ event: 'store.reachable' }, 'connected to Redis'),
    onFinding,
    observe,
  })
  const connected = () => whenConnected(store.ping, STORE_WAIT_MS).catch(() => {})
  return { store, tried: () => Promise.race([connected(), unreachable, pause(STORE_WAIT_MS)]) }
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
        : `Redis refused the credentials (${refused}): check REDIS_URL.`,
    )
  }
}

/**
 * For the operator's commands: the end of sessions, without their life. `end` waits until a revocation may begin, and is
 * false where there was no session; `finish` waits for the last revocations, at most that many milliseconds. `audit`: the log of ends.
 */
export function createSessionEnd(
  options: Pick<VaultOptions, 'store' | 'keyring' | 'log'> & {
    authorizationServer: Pick<AuthorizationServer, 'revoke'>
    audit: Logger
    /** No known secret opens the tokens of this session, so they cannot be revoked. */
    onUnreadable: (key: RecordKey) => void
  },
): { end(key: RecordKey): Promise<boolean>; finish(withinMs: number): Promise<void> } {
  const { freeSlot, revoke, stop } = createRevoker(options)
  const end = createEndSession({ ...options, revoke, onEnded: (ended) => logEnded(options.audit, ended) })
  return {
    async end(key) {
      await freeSlot()
      return await end(key, 'operator')
    },
    async finish(withinMs) {
      await freeSlot()
      await stop(withinMs)
    },
  }
}
