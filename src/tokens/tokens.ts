import { randomUUID } from 'node:crypto'
import type { Clock } from '../clock.ts'
import type { SessionFlow } from '../config/variables.ts'
import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import type { GrantedTokens } from '../oauth/token-response.ts'
import type { EndSession } from '../session/end.ts'
import { createEndSession } from '../session/end.ts'
import type { Found } from '../session/find.ts'
import { createFindSession } from '../session/find.ts'
import type { TokenSet } from '../session/sealed-tokens.ts'
import { sealTokens } from '../session/sealed-tokens.ts'
import type { RecordKey, SessionRecord, SessionStore } from '../store/store.ts'
import { inLog, StoreUnavailable } from '../store/store.ts'
import { createBreaker } from './breaker.ts'
import { createWatchChanges } from './changes.ts'
import type { EndReason, TokenEvents } from './events.ts'
import { createInsist } from './insist.ts'
import type { ObtainAccessToken } from './obtain.ts'
import { createObtainAccessToken } from './obtain.ts'
import { createMissingScan, SCAN_PACE } from './queue-repair.ts'
import type { Written } from './recent.ts'
import { createRecent } from './recent.ts'
import { createRefresh } from './refresh.ts'
import type { RefreshTiming } from './refresh-policy.ts'
import { leaseMs } from './refresh-policy.ts'
import { createResealer } from './reseal.ts'
import { createRevoker } from './revoker.ts'
import { createScheduler } from './scheduler.ts'
import { createFlights } from './single-flight.ts'
import { createSlots } from './slots.ts'
import { createUnsaved } from './unsaved.ts'

export interface TokensOptions {
  store: SessionStore
  authorizationServer: Pick<AuthorizationServer, 'refresh' | 'revoke'>
  keyring: Keyring
  timing: RefreshTiming
  /** Token requests of this process in flight at once. */
  concurrency: number
  timeoutMs: number
  /** How long after a stop began token answers are waited for. */
  stopMs: number
  idleMs: number
  maxMs: number
  clientId: string
  clock: Clock
  random: () => number
  log: Logger
  events: TokenEvents
}

/**
 * The tokens room. It owns the tokens of every session: keeps them sealed in the session's record,
 * replaces them before they expire, with and without requests, and ends the session when the
 * authorization server refuses. Nobody outside sees a refresh token.
 *
 * What keeps tokens from being lost: `unsaved` holds new ones until the store takes them, `recent` writes
 * again what a failover has lost, `insist` repeats a step that the store did not take, `missing` puts back
 * what fell out of the due queue, and `refresh` uses answers that come long after their time.
 */
export interface Tokens {
  /** Starts a session's record at sign-in. Rejects with `StoreUnavailable`; the tokens are then dropped. */
  keep(key: RecordKey, granted: GrantedTokens, flow: SessionFlow): Promise<NewSession>
  find(key: RecordKey): Promise<Found>
  obtainAccessToken: ObtainAccessToken
  end: EndSession
  /** Ends a session that nobody was told of, as soon as the store takes that. */
  abandon(key: RecordKey): void
  /** Revokes tokens that nobody will use. */
  drop(tokens: Pick<TokenSet, 'accessToken' | 'refreshToken'>): void
  gauges(): { unsaved: number; consecutiveFailures: number }
  start(): void
  /**
   * Begins no background work any more, and gives token requests `stopMs` from now to be answered. Resolves when the
   * background work has ended; requests of browsers may still need refreshes after that.
   */
  beginStop(): Promise<void>
  /** To be called when no request is open. Resolves when every refresh under way has been stored. */
  stop(): Promise<void>
}

/** The facts of a session that has just begun; instants in epoch milliseconds. */
export interface NewSession {
  record: Pick<SessionRecord, 'flow' | 'createdAt' | 'seenAt' | 'endsAt'>
  tokens: Pick<TokenSet, 'expiresAt' | 'refreshToken'>
}

/** What a stop still has after the last token answer for writes that were lost and for revocations. */
const LAST_STEPS_MS = 1_500

/** A record whose sign-in is not completed dies after this. */
const PROVISIONAL_MS = 15_000

export function createTokens(options: TokensOptions): Tokens {
  const { store, authorizationServer, keyring, timing, timeoutMs, idleMs, clock, random, log, events } =
    options
  let listenUntil: number | null = null
  const recent = createRecent({ store, monotonic: clock.monotonic, log, onWrittenAgain })

  const revoker = createRevoker({ authorizationServer, log })
  const slots = createSlots(options.concurrency)
  const insist = createInsist({ monotonic: clock.monotonic, log, onRetry: events.retried })
  const breaker = createBreaker({
    now: clock.monotonic,
    random,
    onChange: (open, failures) =>
      log.warn(
        { event: open ? 'breaker.open' : 'breaker.closed', failures },
        open ? 'the token endpoint keeps failing: one request at a time' : 'the token endpoint answers again',
      ),
  })
  const unsaved = createUnsaved({
    clock,
    log,
    onRetry: () => events.retried('tokens'),
    onSettled(key, waiting, result) {
      if (result === 'replaced') onGranted(key, waiting.tokens, waiting.record)
      else if (result !== 'moved') revoker.revoke(waiting.tokens)
    },
  })
  const resealer = createResealer({ store, keyring, now: clock.wall, log })
  const findSession = createFindSession({
    store,
    keyring,
    unsaved,
    recent,
    idleMs,
    clock,
    log,
    onEnded,
    onOpened: resealer.look,
  })
  const watchChanges = createWatchChanges(store)
  const refresh = createRefresh({
    store,
    authorizationServer,
    keyring,
    breaker,
    slots,
    unsaved,
    insist: insist.insist,
    watchChanges,
    timing,
    timeoutMs,
    clock,
    random,
    log,
    events,
    onStored: (key, gen, sealed) => recent.note(key, { kind: 'tokens', gen, sealed }),
    onGranted,
    onEnded,
    drop: revoker.revoke,
  })
  const flights = createFlights({ refresh, findSession, watchChanges, monotonic: clock.monotonic })
  const obtainAccessToken = createObtainAccessToken({
    findSession,
    flights,
    watchChanges,
    isDown: breaker.isOpen,
    timing,
    timeoutMs,
    clock,
  })
  const scheduler = createScheduler({
    store,
    findSession,
    flights,
    breaker,
    slots,
    concurrency: options.concurrency,
    timing,
    idleMs,
    leaseMs: leaseMs(timeoutMs),
    onClockStep: () => missingScan.moveForward(),
    clock,
    random,
    log,
    events,
  })

  const missingScan = createMissingScan({
    store,
    ...SCAN_PACE,
    monotonic: clock.monotonic,
    random,
    log,
  })

  function onGranted(key: RecordKey, tokens: TokenSet, limits: { seenAt: number; endsAt: number }): void {
    // Not waited for, and free to fail: the queue holds an older entry that leads here as well.
    scheduler.plan(key, tokens, limits).catch(logUnlessStoreFailure)
  }

  function onEnded(key: RecordKey, reason: EndReason): void {
    recent.note(key, { kind: 'end', reason })
    events.ended(reason)
    log.info({ event: 'session.ended', reason, recordKey: inLog(key) }, 'session ended')
  }

  function onWrittenAgain(key: RecordKey, what: Written['kind']): void {
    events.restored(what)
    // Its place in the queue may be lost as well: the scheduler finds out when it is due.
    if (what === 'tokens') store.schedule(key, 0).catch(logUnlessStoreFailure)
  }

  function onUnreadable(key: RecordKey): void {
    log.warn(
      { event: 'revocation.unreadable', recordKey: inLog(key) },
      'the tokens of an ended session do not open, and are not revoked',
    )
  }

  function logUnlessStoreFailure(error: unknown): void {
    if (!(error instanceof StoreUnavailable))
      log.error({ event: 'schedule.failed', err: error }, 'not planned')
  }

  async function keep(key: RecordKey, granted: GrantedTokens, flow: SessionFlow): Promise<NewSession> {
    const createdAt = clock.wall()
    const limit = createdAt + options.maxMs
    const endsAt = granted.refreshToken === null ? Math.min(limit, granted.expiresAt) : limit
    const record = {
      tokens: sealTokens(keyring, key, granted, createdAt),
      createdAt,
      endsAt,
      flow,
      client: options.clientId,
    }
    const attempt = randomUUID()
    // First the hint, then the record: an entry without a record is dropped when it is claimed.
    await scheduler.plan(key, granted, { seenAt: createdAt, endsAt })
    await store.create(key, record, attempt, PROVISIONAL_MS)
    events.started(flow)
    return { record: { flow, createdAt, seenAt: createdAt, endsAt }, tokens: granted }
  }

  function abandon(key: RecordKey): void {
    const step = () => store.end(key, null)
    step().catch(() => insist.insist('end', key, options.maxMs, step))
  }

  async function beginStop(): Promise<void> {
    listenUntil ??= clock.monotonic() + options.stopMs
    refresh.closeAt(listenUntil)
    await Promise.all([scheduler.stop(), missingScan.stop()])
  }

  return {
    keep,
    find: findSession,
    obtainAccessToken,
    end: createEndSession({ store, keyring, revoke: revoker.revoke, log, onEnded, onUnreadable }),
    abandon,
    drop: revoker.revoke,
    gauges: () => ({ unsaved: unsaved.size(), consecutiveFailures: breaker.failures() }),
    start() {
      scheduler.start()
      missingScan.start()
    },
    beginStop,
    async stop() {
      await beginStop()
      await flights.settled()
      insist.stop()
      await unsaved.settled()
      await resealer.settled()
      const leftMs = Math.max(0, listenUntil! + LAST_STEPS_MS - clock.monotonic())
      await Promise.all([recent.stop(), revoker.stop(leftMs)])
    },
  }
}
