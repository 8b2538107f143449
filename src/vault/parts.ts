import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { SessionCookies } from '../http/cookies.ts'
import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationClient } from '../oauth/client.ts'
import { type Binding, createBinding } from './binding.ts'
import { createSessionCache, reportWrites } from './cache.ts'
import { type Caller, createCallers } from './caller.ts'
import { createSessions } from './lifecycle.ts'
import type { Refresh, RefreshEvents } from './refresh/refresh.ts'
import { createRevoker } from './refresh/revoker.ts'
import { createTokens } from './refresh/tokens.ts'
import type { EndReason } from './session.ts'
import { createOutbox } from './store/outbox.ts'
import type { WriteKind } from './store/outbox-entries.ts'
import type { SessionStore } from './store/store.ts'

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
  authorizationClient: Pick<AuthorizationClient, 'refresh' | 'revoke'>
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

/**
 * Every part of the vault, from the store up; each is made for the next ones. vault.ts shows what other folders need of
 * them. A test that looks inside calls this.
 */
export function createParts(options: VaultOptions) {
  const { config, authorizationClient, keyring, cookies, clock, random, log } = options
  const { oauth, refresh: timing } = config
  const { events, wrapRefresh } = options.observe
  const idleMs = config.session.idleSeconds * 1_000
  const trustMs = config.session.cacheMs

  const cache = createSessionCache<Caller>({ max: CACHED_SESSIONS, trustMs, monotonic: clock.monotonic })
  const store = createOutbox({
    store: reportWrites(options.store, cache.drop),
    clock,
    log,
    onRetried: events.retried,
    onRestored: events.restored,
  })
  const revoker = createRevoker({ authorizationClient, log, clock })
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
    authorizationClient,
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
  const binding = bindingFor(options)
  const callers = createCallers({
    cookies,
    binding,
    cache,
    trustMs,
    sessions,
    tokens,
    timing,
    idleMs,
    clock,
    observe: events.cache,
  })

  return { store, cache, binding, revoker, sessions, tokens, callers }
}

/** The only part that may be missing: null where sessions are not bound to devices (`SESSION_BINDING`). */
function bindingFor({ config, keyring, clock }: VaultOptions): Binding | null {
  if (!config.session.isBound) return null
  return createBinding({ keyring, publicUrl: config.publicUrl, now: clock.wall })
}
