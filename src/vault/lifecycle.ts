import type { Clock } from '../clock.ts'
import type { SessionFlow } from '../config/variables.ts'
import type { Keyring } from '../keyring.ts'
import type { Logger, RequestInLog } from '../log.ts'
import {
  END_REASONS,
  type EndReason,
  type Found,
  forClientId,
  type LiveSession,
  openTokens,
  passedLimit,
  sealTokens,
  type TokenSet,
} from './session.ts'
import type { OutboxStore } from './store/outbox.ts'
import type { EndResult, RecordKey, SessionRecord, SessionState } from './store/record.ts'
import { inLog, type SessionStore, StoreUnavailable } from './store/store.ts'

/**
 * The life of sessions in a server process; what vault.ts shows of it has the same names. login/fastify-session.ts confirms a
 * new one. The operator's commands end sessions with `createEndSession`. A store that fails is a rejection with
 * `StoreUnavailable`.
 */
export interface Sessions {
  /** Creates a provisional session, which lives for 15 s unless it is confirmed. */
  begin(key: RecordKey, granted: TokenSet, flow: SessionFlow): Promise<NewSession>
  /** Ends a session whose creation or confirmation failed, as soon as the store takes that. Its tokens are not revoked here. */
  abandon(key: RecordKey): void
  /**
   * Looks a session up, and ends it where it has passed a limit. The scheduler calls it too, so the sessions of absent
   * browsers end in time. `request`: the one that asks, for the log.
   */
  look(key: RecordKey, request?: RequestInLog): Promise<Found>
  /** What a small read shows of a session; null where there is none. Checks no limit. */
  readState(key: RecordKey): Promise<SessionState | null>
  /** Records that the browser of this session is active now; false where there is none. Checks no limit: `look` first. */
  stay(key: RecordKey): Promise<boolean>
  end: EndSession
  /**
   * Stores the tokens that a refresh has brought, and puts the session into the due queue again. They are revoked if the
   * session has ended.
   */
  replaceTokens(session: LiveSession, granted: TokenSet): Promise<Replaced>
  /**
   * Ends a session whose refresh token was refused to the holder `attempt` of the lease, and logs that. `precondition_failed`: its
   * tokens were replaced, or another attempt holds the lease, so it goes on. `gone`: there is no such session. While
   * the store fails this rejects, and the end is tried again in the background until the absolute limit.
   */
  endRefused(session: LiveSession, refusal: FailureWords & { attempt: string }): Promise<EndResult['kind']>
}

/** What the log says of an answer of the token endpoint without tokens. */
export interface FailureWords {
  readonly reason?: string | undefined
  /** The token endpoint's own words, without secrets. */
  readonly description?: string | undefined
}

/** The facts of a session that has just begun; instants in epoch milliseconds. */
export interface NewSession {
  key: RecordKey
  record: Pick<SessionRecord, 'flow' | 'createdAt' | 'idleEndsAt' | 'endsAt' | 'bound'>
  tokens: Pick<TokenSet, 'expiresAt' | 'refreshToken' | 'user'>
}

/** `changed`: newer tokens are there, or the store does not take these now and tries again. `look` shows what is newest. */
type Replaced = { kind: 'granted'; session: LiveSession } | { kind: 'changed' } | { kind: 'ended' }

/**
 * Ends a session for every replica and revokes its tokens in the background, but not those of a `replaced` one: the
 * service calls a token unique for one user and one client (section 5.6). false where there was none to end; with `gen`
 * also where its tokens are of another generation. Rejects with `StoreUnavailable`.
 */
type EndSession = (
  key: RecordKey,
  reason: EndReason,
  more?: { gen?: number; request?: RequestInLog },
) => Promise<boolean>

/** A session that has just ended. Without `request` no single request ended it. */
interface Ended {
  key: RecordKey
  reason: EndReason
  request?: RequestInLog | undefined
  /** As the log names the user of the session (`Keyring.digitsOf`). */
  user?: string | undefined
}

interface SessionsOptions {
  store: OutboxStore
  keyring: Keyring
  idleMs: number
  maxMs: number
  /** The `client_id` that tokens are issued to. */
  clientId: string
  clock: Clock
  log: Logger
  /** Puts a new session into the due queue. */
  schedule: (key: RecordKey, tokens: TokenSet, record: Pick<SessionRecord, 'idleEndsAt'>) => Promise<void>
  revoke: (tokens: TokenSet, key: RecordKey) => void
  onEnded: (ended: Ended) => void
}

const PROVISIONAL_MS = 15_000

export function createSessions(options: SessionsOptions): Sessions {
  const { store, keyring, clock, log } = options
  const end = createEndSession({ ...options, onEnded: noteEnd, onUnreadable })

  const userOf = ({ tokens }: LiveSession) => userInLog(keyring, tokens)

  function noteEnd(ended: Ended): void {
    options.onEnded(ended)
    logEnded(log, ended)
  }

  function onUnreadable(key: RecordKey): void {
    log.warn(
      { event: 'revocation.unreadable', recordKey: inLog(key) },
      'the tokens of an ended session cannot be opened: they are not revoked',
    )
  }

  async function begin(key: RecordKey, granted: TokenSet, flow: SessionFlow): Promise<NewSession> {
    const createdAt = clock.wall()
    const limit = createdAt + options.maxMs
    const endsAt = granted.refreshToken === null ? Math.min(limit, granted.expiresAt) : limit
    const idleEndsAt = Math.min(createdAt + options.idleMs, endsAt)
    const tokens = sealTokens(keyring, key, granted)
    // The queue first: an entry without a record is dropped when it is claimed, a record without an entry is not refreshed.
    await options.schedule(key, granted, { idleEndsAt })
    const record = { tokens, createdAt, endsAt, flow, client: options.clientId }
    await store.create(key, record, PROVISIONAL_MS)
    return { key, record: { flow, createdAt, idleEndsAt, endsAt, bound: false }, tokens: granted }
  }

  async function look(key: RecordKey, request?: RequestInLog): Promise<Found> {
    const record = await store.read(key)
    if (record === null) return await endedBefore(key)
    const limit = passedLimit(record, clock.wall())
    if (limit !== null) {
      const { kind } = await store.end(key, { reason: limit, ifLimitPassed: true })
      if (kind === 'gone') return await endedBefore(key)
      if (kind === 'ended') {
        // No revocation: most users just leave, and with the record nobody has the tokens any more.
        noteEnd({ key, reason: limit, request })
        return { kind: 'ended', reason: limit, at: Math.min(record.idleEndsAt, record.endsAt) }
      }
      // By the store's clock the session lives: the clock of this process is wrong, or the browser has just been active.
    }
    const opened = openTokens(keyring, key, record.tokens)
    if (opened === null) {
      // Left in place: a replica that has the secret can read it.
      log.error(
        { event: 'session.unreadable', recordKey: inLog(key) },
        'the tokens of a session cannot be opened: check SESSION_SECRET on all replicas',
      )
      return { kind: 'unreadable' }
    }
    const session = forClientId({ key, record, tokens: opened.tokens }, options.clientId)
    const { endsAt } = session.record
    if (endsAt === record.endsAt || clock.wall() < endsAt) return { kind: 'live', session }
    // The record does not have this limit, so `ifLimitPassed` cannot ask the store's clock.
    const { kind } = await store.end(key, { reason: 'absolute', gen: record.gen })
    // A replica with the earlier CLIENT_ID has just refreshed it.
    if (kind === 'precondition_failed') return await look(key, request)
    if (kind === 'gone') return await endedBefore(key)
    noteEnd({ key, reason: 'absolute', request, user: userOf(session) })
    return { kind: 'ended', reason: 'absolute', at: endsAt }
  }

  /** The session has ended even if the store cannot say why. */
  async function endedBefore(key: RecordKey): Promise<Found> {
    const kept = await store.readEnd(key).catch(() => null)
    const reason = END_REASONS.find((known) => known === kept?.reason) ?? null
    return { kind: 'ended', reason, at: kept?.at ?? null }
  }

  return {
    begin,
    abandon(key) {
      store
        .endUntilTaken(key, {}, options.maxMs)
        .catch((error: unknown) =>
          log.error({ event: 'store.step_failed', err: error }, 'a write to a session record failed'),
        )
    },
    look,
    readState: store.readState,
    stay: store.touch,
    end,
    replaceTokens: createReplaceTokens(options),
    async endRefused(session, { attempt, reason, description }) {
      const { key } = session
      const { gen, endsAt } = session.record
      const forMs = endsAt - clock.wall()
      const noteRefused = (): void => {
        log.info(
          { event: 'refresh.refused', reason, description, recordKey: inLog(key) },
          'the authorization server refused the refresh token: the session ends',
        )
        noteEnd({ key, reason: 'refused', user: userOf(session) })
      }
      // No revocation: the authorization server has just said that the refresh token is not valid.
      const ended = await store.endUntilTaken(key, { gen, attempt, reason: 'refused' }, forMs)
      if (ended.kind === 'pending') {
        void ended.result.then(({ kind }) => {
          if (kind === 'ended') noteRefused()
        })
        throw new StoreUnavailable(new Error('the end of the session is not stored yet'))
      }
      if (ended.kind === 'ended') noteRefused()
      return ended.kind
    },
  }
}

/** Replaces the tokens of sessions; see `Sessions.replaceTokens`. */
function createReplaceTokens({
  store,
  keyring,
  log,
  schedule,
  revoke,
}: SessionsOptions): Sessions['replaceTokens'] {
  function afterReply(session: LiveSession, kind: 'replaced' | 'newer' | 'gone' | 'expired'): Replaced {
    const { key, tokens, record } = session
    switch (kind) {
      case 'replaced':
        // The queue still holds an older entry of this session, so a failure is harmless.
        schedule(key, tokens, record).catch(logDefect(log))
        return { kind: 'granted', session }
      case 'newer':
        // Not revoked: that may revoke the whole grant (RFC 7009 section 2.1), and the newer tokens with it.
        log.warn(
          { event: 'refresh.overtaken', recordKey: inLog(key) },
          'newer tokens were stored while this refresh was under way',
        )
        return { kind: 'changed' }
      case 'gone':
      case 'expired':
        revoke(tokens, key)
        return { kind: 'ended' }
    }
  }

  return async function replaceTokens(before, granted) {
    const { key, record } = before
    const { gen, endsAt } = record
    // A response names no user, and one without a refresh token leaves the old one in force (RFC 6749 section 6).
    const { user = null } = before.tokens
    const tokens = { ...granted, ...refreshTokenAfter(before.tokens, granted), user }
    const sealed = sealTokens(keyring, key, tokens)
    const session = { key, tokens, record: { ...record, tokens: sealed, gen: gen + 1, replacedAt: 0 } }
    const replaced = await store.replaceTokens(key, { gen, tokens: sealed, endsAt })
    if (replaced.kind !== 'pending') return afterReply(session, replaced.kind)
    // The store logs what it could not keep.
    replaced.result.then(({ kind }) => void afterReply(session, kind)).catch(() => {})
    return { kind: 'changed' }
  }
}

/** Without a new refresh token the old one stays, with its end unless the response says another. */
function refreshTokenAfter(
  before: TokenSet,
  granted: TokenSet,
): Pick<TokenSet, 'refreshToken' | 'refreshExpiresAt'> {
  const { refreshToken, refreshExpiresAt = null } = granted
  if (refreshToken !== null) return { refreshToken, refreshExpiresAt }
  const { refreshToken: old, refreshExpiresAt: oldEnd = null } = before
  return { refreshToken: old, refreshExpiresAt: refreshExpiresAt ?? oldEnd }
}

/** As the log names the user of these tokens; undefined where nobody said whose they are. */
function userInLog(keyring: Keyring, { user }: TokenSet): string | undefined {
  return user ? keyring.digitsOf('users', user.id) : undefined
}

/** Logs that a session ended, for the server and for the operator's commands. */
export function logEnded(log: Logger, { key, reason, request, user }: Ended): void {
  const line = { event: 'session.ended', reason, recordKey: inLog(key), ...request }
  log.info(user === undefined ? line : { ...line, user }, 'session ended')
}

interface EndSessionOptions {
  store: Pick<SessionStore, 'end' | 'schedule'>
  keyring: Keyring
  log: Logger
  revoke: (tokens: TokenSet, key: RecordKey) => void
  onEnded: (ended: Ended) => void
  /** No known secret opens the tokens, so they cannot be revoked. */
  onUnreadable: (key: RecordKey) => void
}

/** The end of sessions: of a server process, and alone for the operator's commands. */
export function createEndSession(options: EndSessionOptions): EndSession {
  const { store, keyring, log } = options

  return async function end(key, reason, { gen, request } = {}) {
    const ended = await store.end(key, { reason, ...(gen === undefined ? {} : { gen }) })
    if (ended.kind !== 'ended') return false
    const opened = openTokens(keyring, key, ended.tokens)
    options.onEnded({ key, reason, request, user: opened ? userInLog(keyring, opened.tokens) : undefined })
    if (opened === null) options.onUnreadable(key)
    else if (reason !== 'replaced') options.revoke(opened.tokens, key)
    // An entry that stays is dropped when it is claimed.
    const done = store.schedule(key, null).catch(logDefect(log))
    // The process of an operator's command may exit as soon as this resolves.
    if (reason === 'operator') await done
    return true
  }
}

function logDefect(log: Logger): (error: unknown) => void {
  return (error) => {
    if (!(error instanceof StoreUnavailable))
      log.error({ event: 'schedule.failed', err: error }, 'the due queue was not updated: please report it')
  }
}
