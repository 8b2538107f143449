import type { TokenOutcome } from '../../src/oauth/token-response.ts'
import { touchIntervalMs } from '../../src/vault/session.ts'
import type { RecordKey, StoredRecord } from '../../src/vault/store/record.ts'
import type { AccessToken, Family, Presentation, RefreshToken } from './authorization-server.ts'
import type { Deployment } from './deployment.ts'
import type { Replica } from './replica.ts'
import { leaseMs, resetAfterMs, type Settings } from './settings.ts'
import type { RedisServer } from './simulated-redis.ts'
import type { VirtualClock } from './virtual-clock.ts'

/** A broken rule. */
export interface Violation {
  /** Short and the same for each case of this kind. */
  readonly rule: string
  readonly detail: string
  readonly at: number
}

/** The documented reasons for the loss of a session. */
export type LossCause =
  | 'response lost after rotation'
  | 'crash while a token request was under way'
  | 'crash between rotation and store'
  | 'request processed after its connection was closed'
  | 'failover lost the newest write with its process'
  | 'holder cut off from Redis'
  | 'process stopped longer than the lease while its request was on the way'
  | 'Redis clock stepped forward during a request'
  | 'session begun in the last moment of a master'
  | 'Redis lost its data'
  | 'failover lost the end of a session'
  | 'replica with a superseded master'
  | 'failover lost a lease'
  | 'older token after a failover'
  | 'activity lost with a master or a process'
  | 'stopped while its tokens could not be stored'

/** The true state of a session, independent of the view of the replicas. */
export interface Session {
  readonly key: RecordKey
  readonly user: number
  readonly family: Family
  readonly refreshable: boolean
  readonly beganAt: number
  /** `unknown`: its sign-in had no response, or a sign-out did not. */
  state: 'starting' | 'alive' | 'unknown' | 'ended'
  /** When its record was deleted. */
  deletedAt: number | null
  /** A failover has brought the record back, or lost newer tokens. */
  rolledBack: boolean
  /** Replicas that reported its end, and when. */
  readonly endedAt: Map<Replica, number>
  userRevoked: boolean
  lastActivityAt: number
  /** The refresh token of it that was presented again after its use. */
  reused: RefreshToken | null
  /** Its refresh token is dead, in words that the replicas do not know. */
  diedUnnamed: boolean
  /** The resource server refused the access token of this serial. */
  refusedSerial: number
  refusedAt: number
  /** Of the newest tokens in the master that counts, and since when. */
  storedSerial: number
  storedAt: number
  /** When its lease or its tokens last changed in any server. */
  movedAt: number
  readonly causes: Set<LossCause>
  lossReported: boolean
  readonly served: Map<Replica, { serial: number; at: number }>
}

const CLOCK_SLACK_MS = 6_000
/** Wall clocks that nobody steps are this close to each other, the delay of a response included. */
const SKEW_MS = 1_500
/** Tokens that Redis did not take are written again at least every two seconds. */
const STORES_WITHIN_MS = 2_500
/** A process goes by what it knows of Redis' clock for so long. */
const RECALLED_MS = 60_000
/** A command of sound connections has been executed by then. */
const COMMAND_MS = 1_000
/** A holder renews its lease so often. */
const RENEWS_EVERY_MS = 1_500
/** From one renewal of a lease to the next, with what a command may take. */
const RENEWAL_MS = 3_500
/** A holder whose record has moved on has noticed by then. */
const NOTICED_WITHIN_MS = 6_000
/** Causes after which the refresh token was used, and no process has its successor. */
const LOST_RESPONSES: ReadonlySet<LossCause> = new Set([
  'response lost after rotation',
  'crash while a token request was under way',
  'request processed after its connection was closed',
])
/** After the lease has lapsed and the connection is closed, a refresh token in doubt is presented within this time. */
const ASKS_WITHIN_MS = 15_000
/** Requests in flight with which each replica begins. */
const CROWD_BEGINS_AT = 8
/** After such a pause it begins again. */
const AGAIN_AFTER_MS = 60_000
/** What is written this long before a master is replaced, or to it after that, may be lost. */
const LAST_MOMENT_MS = 8_000

/**
 * Everything that matters of a simulated history, and the rules that it must keep. Each rule is checked at the
 * event that could break it.
 */
export class InvariantChecker {
  violation: Violation | null = null
  readonly sessions = new Map<RecordKey, Session>()
  readonly lossCauses = new Map<LossCause, number>()
  presentations = 0
  calls = 0
  lost = 0
  /** Until when processes, or their connections to Redis, may be disturbed by faults. */
  disturbedUntil = 0
  /** The same of both servers of the platform. */
  platformDisturbedUntil = 0
  /** When the newest failover or restart of a master was, and the newest step of its clock forward. */
  failedOverAt = Number.NEGATIVE_INFINITY
  clockSteppedAt = Number.NEGATIVE_INFINITY
  /** When masters were replaced and processes died without a word. */
  readonly #disruptions: number[] = []
  /** Masters that promotions have replaced. */
  readonly superseded = new Set<RedisServer>()
  /** By the id of the family. */
  readonly #byFamily = new Map<number, Session>()
  readonly #open = new Set<Presentation>()
  /** Presentations whose new tokens are perhaps in no master. */
  readonly #granted = new Map<Family, Presentation>()
  readonly #clock: VirtualClock
  readonly #settings: Settings
  readonly #deployment: Deployment

  constructor(deployment: Deployment) {
    this.#deployment = deployment
    this.#clock = deployment.clock
    this.#settings = deployment.settings
  }

  /** The record as the master that counts has it. */
  #recordOf(key: RecordKey): StoredRecord | null {
    return this.#deployment.masterOf(key).live(key)
  }

  note(who: string, text: string): void {
    this.#deployment.trace.note(this.#clock.now, who, text)
  }

  violated(rule: string, detail: string): void {
    if (this.violation !== null) return
    this.violation = { rule, detail, at: this.#clock.now }
    this.note('VIOLATION', `${rule}: ${detail}`)
    this.#clock.stopped = true
  }

  #count(cause: LossCause): void {
    this.lossCauses.set(cause, (this.lossCauses.get(cause) ?? 0) + 1)
  }

  #addCause(session: Session | undefined, cause: LossCause): void {
    if (session === undefined || session.causes.has(cause)) return
    session.causes.add(cause)
    this.note('cause', `${cause}: session ${session.family.id}`)
  }

  /** A sign-in has chosen this key. */
  begin(newSession: Pick<Session, 'key' | 'user' | 'family' | 'refreshable'>): Session {
    const { key, family } = newSession
    const session: Session = {
      ...newSession,
      beganAt: this.#clock.now,
      state: 'starting',
      deletedAt: null,
      rolledBack: false,
      endedAt: new Map(),
      userRevoked: false,
      lastActivityAt: this.#clock.now,
      reused: null,
      diedUnnamed: false,
      refusedSerial: 0,
      refusedAt: Number.NEGATIVE_INFINITY,
      storedSerial: 1,
      storedAt: this.#clock.now,
      movedAt: this.#clock.now,
      causes: new Set(),
      lossReported: false,
      served: new Map(),
    }
    this.sessions.set(key, session)
    this.#byFamily.set(family.id, session)
    return session
  }

  /** Whether the session must be served. */
  lives(session: Session): boolean {
    const { idleMs, maxMs } = this.#settings
    return (
      session.state === 'alive' &&
      session.deletedAt === null &&
      session.refreshable &&
      !session.userRevoked &&
      // A touch that is lost costs one more interval.
      this.#clock.now < session.lastActivityAt + idleMs - 2 * touchIntervalMs(idleMs) - CLOCK_SLACK_MS &&
      this.#clock.now < session.beganAt + maxMs - CLOCK_SLACK_MS
    )
  }

  // Token requests.

  presented(token: RefreshToken, by: Replica): Presentation {
    const session = this.#byFamily.get(token.family.id)
    this.presentations += 1
    if (token.family.rotates && session !== undefined) this.#checkPresentation(token, by, session)
    const presentation: Presentation = {
      token,
      by,
      sentAt: this.#clock.now,
      state: 'open',
      outcome: null,
      overAt: Number.POSITIVE_INFINITY,
      issued: 0,
    }
    token.presentations.push(presentation)
    this.#open.add(presentation)
    return presentation
  }

  #checkPresentation(token: RefreshToken, by: Replica, session: Session): void {
    const { now } = this.#clock
    let doubts = 0
    for (const earlier of token.presentations) {
      const { state, outcome, issued } = earlier
      if (state === 'open' || outcome === 'granted') {
        const excuse = this.#excuse(earlier, session, by)
        if (excuse === null) return void this.#presentedTwice(token, by, earlier)
        this.#addCause(session, excuse)
      }
      if (state !== 'finished' || outcome === 'in_doubt' || (outcome !== 'granted' && issued > 0)) doubts += 1
    }
    if (doubts === 0 || session.refusedSerial >= token.serial) return
    // Where a used one is granted again it is presented once more.
    if (doubts === 1 && now < token.presentations[0]!.sentAt + this.#settings.reuseMs) return
    // By the clock of the process or by the age that the store knows: either may be wrong. It has looked at its clock
    // before it took the lease, and so before a step that came meanwhile.
    const { lifeSeconds } = token.family
    const steppedMs = by.step.at > now - COMMAND_MS ? by.step.byMs : 0
    const leftMs = Math.min(
      token.clientExpiresAt - this.#clock.wall(by) + Math.min(0, steppedMs),
      token.issuedAt + lifeSeconds * 1_000 - now,
    )
    // A reply that is read after a stall shows the store's time before it, so the tokens that are stored next look older. Its
    // doubts may have been written to the master before.
    if (leftMs <= 5 + token.stalledMs || this.failedOverAt > token.presentations[0]!.sentAt - LAST_MOMENT_MS)
      return
    if (this.clockSteppedAt > token.issuedAt - RECALLED_MS) return
    this.violated(
      'a refresh token in doubt is presented too early',
      `${token.text} by ${by.name}, ${Math.round(leftMs)} ms before it may be, doubts: ${doubts}`,
    )
  }

  #presentedTwice(token: RefreshToken, by: Replica, earlier: Presentation): void {
    const ageMs = (since: number): number => Math.round(this.#clock.now - since)
    if (earlier.state === 'open')
      this.violated(
        'a refresh token is presented while an earlier presentation may still get a response',
        `${token.text} by ${by.name}, ${ageMs(earlier.sentAt)} ms after ${earlier.by.name}`,
      )
    else
      this.violated(
        'a refresh token is presented although its successor was received',
        `${token.text} by ${by.name}, received by ${earlier.by.name} ${ageMs(earlier.overAt)} ms ago`,
      )
  }

  /** Why a presentation that others cannot know of may be followed by another one; null for no reason. */
  #excuse(earlier: Presentation, session: Session, presenter: Replica): LossCause | null {
    const { by, sentAt, overAt } = earlier
    const commands = by.commandsOf(session.key)
    const since = Math.min(sentAt, overAt)
    if (!by.alive) {
      if (earlier.outcome !== 'granted') return 'crash while a token request was under way'
      return session.rolledBack
        ? 'failover lost the newest write with its process'
        : 'crash between rotation and store'
    }
    // It leaves at most a timeout after its lease was asked for.
    if (this.clockSteppedAt >= since - this.#settings.timeoutMs)
      return 'Redis clock stepped forward during a request'
    const lease = leaseMs(this.#settings)
    if (by.stalledMsSince(since) > lease / 3)
      return 'process stopped longer than the lease while its request was on the way'
    // It renews its lease often, so that a lease lapses only where nothing could be written for a while. Part of the
    // lease may have passed before the request left.
    const { timeoutMs } = this.#settings
    const left = lease - Math.min(timeoutMs, by.stalledMsSince(sentAt - timeoutMs))
    const couldNotWrite = commands.couldNotWriteMs(RENEWAL_MS) > left - RENEWAL_MS
    if (earlier.state === 'open') {
      if (this.failedOverAt > since) return 'failover lost a lease'
      // Written to the master before, by a process that still followed it and could not write it again.
      const couldNot = by.stalledMsSince(since) > RENEWS_EVERY_MS || commands.failedAt > since
      if (this.failedOverAt > since - LAST_MOMENT_MS && couldNot) return 'failover lost a lease'
      return couldNotWrite ? 'holder cut off from Redis' : null
    }
    // With the lease gone the others wait for the pause after a failover alone.
    const lostLease = this.failedOverAt > since - LAST_MOMENT_MS && commands.failedAt > since
    // Several troubles in a row may leave it no time to renew the lease and to store what it has, until that has lapsed.
    // The next one took its lease before it was held up.
    const heldUpMs = presenter.stalledMsSince(this.#clock.now - lease)
    const hadNoTime = !commands.couldWriteFor(STORES_WITHIN_MS + heldUpMs, overAt)
    const renewedAt = Math.min(overAt, Math.max(sentAt, commands.couldWriteUntil(RENEWAL_MS)))
    const lapsed = this.#clock.now - renewedAt > left - RENEWAL_MS
    if (couldNotWrite || lostLease || (hadNoTime && lapsed)) return 'holder cut off from Redis'
    if (!commands.followsMaster()) return 'replica with a superseded master'
    return null
  }

  /** A request has reached the token endpoint. */
  delivered({ token, by, sentAt }: Presentation): void {
    const session = this.#byFamily.get(token.family.id)
    if (session === undefined || !token.family.rotates || !by.alive) return
    const { storedAt, storedSerial } = session
    const { now } = this.#clock
    const since = now - NOTICED_WITHIN_MS
    if (storedSerial <= token.serial || storedAt > since) return
    const record = this.#recordOf(session.key)
    if (record === null || serialOf(record.tokens) <= token.serial) return
    const commands = by.commandsOf(session.key)
    if (by.stalledMsSince(since) > 0 || commands.failedAt > since) return
    if (!commands.followsMaster() || this.failedOverAt > sentAt) return
    this.violated(
      'a request is delivered although its record has moved on',
      `${token.text} by ${by.name}, sent ${Math.round(now - sentAt)} ms ago, replaced ${Math.round(now - storedAt)} ms ago`,
    )
  }

  /** A refresh token that had been used was presented again. */
  reused({ state, token }: Presentation): void {
    const session = this.#byFamily.get(token.family.id)
    if (session !== undefined) session.reused = token
    // What was delivered before its connection was closed may be processed long after that.
    if (state === 'closed')
      this.#addCause(this.#byFamily.get(token.family.id), 'request processed after its connection was closed')
  }

  /** A dead refresh token was answered for in words that the replicas do not know. */
  diedUnnamed({ token }: Presentation): void {
    const session = this.#byFamily.get(token.family.id)
    if (session === undefined || session.diedUnnamed) return
    session.diedUnnamed = true
    if (!this.lives(session)) return
    if (session.causes.size === 0)
      this.violated(
        'a session ends without a documented cause',
        `session ${session.family.id}: dead, unnamed`,
      )
    else if (this.#wouldBeKept(session)) this.#notKept(session)
    else this.#lost(session)
  }

  /** Whether this server would have granted its refresh token again, and nothing hindered a replica to ask in time. */
  #wouldBeKept({ causes, reused, beganAt }: Session): boolean {
    const { server, reuseMs, clocksStep, update } = this.#settings
    // After an update the entries of the due queue come back within minutes.
    if (reused === null || clocksStep || update !== null) return false
    if ([...causes].some((cause) => !LOST_RESPONSES.has(cause))) return false
    if (server.untilUsed) return true
    if (reuseMs === 0 || server.graceSeconds === 0 || reused.used === null) return false
    // It is granted again once for each response that may be lost: more than one were.
    if (reused.presentations.filter(({ issued }) => issued > 0).length > 1) return false
    // Entries of the due queue that a failover has lost come back within minutes.
    if (this.failedOverAt > beganAt) return false
    const { at } = reused.used
    const reset = resetAfterMs(this.#settings)
    const quietFrom = Math.max(at, this.disturbedUntil, this.platformDisturbedUntil + reset)
    return quietFrom + leaseMs(this.#settings) + reset + ASKS_WITHIN_MS < at + server.graceSeconds * 1_000
  }

  #notKept({ family }: Session): void {
    const { name } = this.#settings.server
    this.violated('a session is lost although its server would have kept it', `session ${family.id}, ${name}`)
  }

  rotated(presentation: Presentation, serial: number): void {
    presentation.issued = serial
    this.note('auth', `rotates ${presentation.token.text} for ${presentation.by.name}`)
    if (presentation.state === 'closed') this.#unheard(presentation)
  }

  finished(presentation: Presentation, outcome: TokenOutcome): void {
    if (!this.#ends(presentation, 'finished')) return
    this.#checkCrowd(presentation)
    presentation.outcome = outcome.kind
    if (outcome.kind === 'granted') this.#granted.set(presentation.token.family, presentation)
    else if (presentation.issued > 0) this.#unheard(presentation)
  }

  /** Responses come in time: those to the first requests of all replicas where they can, and all those to later ones. */
  #checkCrowd({ sentAt, token, by }: Presentation): void {
    const { crowd, replicas, timeoutMs } = this.#settings
    if (crowd === null) return
    const { downAt, downMs, serviceMs } = crowd
    const firstMs = replicas * CROWD_BEGINS_AT * serviceMs
    // After a minute in which it was not reached, the number of requests begins again.
    const msUp = sentAt - downAt - downMs
    const isLater =
      msUp > 2 * firstMs + timeoutMs && msUp < AGAIN_AFTER_MS && replicas * serviceMs < timeoutMs / 8
    if (firstMs > 0.8 * timeoutMs && !isLater) return
    const ms = this.#clock.now - sentAt
    if (ms > timeoutMs)
      this.violated(
        'a request of a crowd waits too long',
        `${token.text} by ${by.name}: ${Math.round(ms)} ms`,
      )
  }

  closed(presentation: Presentation): void {
    if (this.#ends(presentation, 'closed') && presentation.issued > 0) this.#unheard(presentation)
  }

  /** Its own process closes the connection. */
  reset({ token, by, sentAt }: Presentation): void {
    const { now } = this.#clock
    const settings = this.#settings
    // A stop does so, and a response that does not come. It may have been sent a timeout after it was begun.
    if (!by.ready || now - sentAt >= resetAfterMs(settings) - settings.timeoutMs) return
    const session = this.#byFamily.get(token.family.id)
    const record = session === undefined ? null : this.#recordOf(session.key)
    if (session === undefined || record === null || session.movedAt >= sentAt) return
    if (record.lease === '' && serialOf(record.tokens) === token.serial)
      this.violated(
        'a presentation is given up although nobody else has its lease',
        `${token.text} by ${by.name}, sent ${Math.round(now - sentAt)} ms ago`,
      )
  }

  /** Whether it was open until now. */
  #ends(presentation: Presentation, state: 'finished' | 'closed'): boolean {
    if (!this.#open.delete(presentation)) return false
    presentation.state = state
    presentation.overAt = this.#clock.now
    return true
  }

  #unheard({ token, by, sentAt }: Presentation): void {
    const session = this.#byFamily.get(token.family.id)
    if (this.#settings.crowd !== null && by.alive) {
      const ms = Math.round(this.#clock.now - sentAt)
      this.violated('a request of a crowd is granted to nobody', `${token.text} by ${by.name} after ${ms} ms`)
    }
    this.#addCause(
      session,
      by.alive ? 'response lost after rotation' : 'crash while a token request was under way',
    )
  }

  revokedByClient(family: Family, by: Replica): void {
    family.revoked = true
    this.note('auth', `family ${family.id} is revoked by ${by.name}`)
    const session = this.#byFamily.get(family.id)
    if (session === undefined || session.deletedAt !== null || session.state !== 'alive') return
    this.#checkBegun(session)
    if (session.causes.size > 0 || session.rolledBack || !this.lives(session)) return
    this.violated('the tokens of a living session are revoked', `session ${family.id} by ${by.name}`)
  }

  // The store.

  stored(server: RedisServer, before: StoredRecord, after: StoredRecord): void {
    const [older, newer] = [serialOf(before.tokens), serialOf(after.tokens)]
    // Where a used one is granted again with another pair, both pairs are valid, and the longer chain wins.
    const isSibling = this.#settings.server.again === 'another' && after.gen > before.gen
    if (
      (newer < older && !isSibling) ||
      (newer === older && after.gen !== before.gen && before.tokens !== after.tokens)
    ) {
      const detail = `tokens ${newer} over tokens ${older} on ${server.name}`
      this.violated('older tokens are written over newer ones', detail)
    }
    // What is written to a master that was replaced is lost, until its writer writes it again.
    const session = this.#ofTokens(after)
    if (session !== undefined && newer !== older) session.movedAt = this.#clock.now
    if (session !== undefined && this.superseded.has(server)) session.rolledBack = true
    else if (session !== undefined && newer > session.storedSerial) {
      session.storedSerial = newer
      session.storedAt = this.#clock.now
    }
    if (after.gen < before.gen) this.violated('a generation goes back', `${before.gen} to ${after.gen}`)
  }

  leaseChanged(record: StoredRecord): void {
    const session = this.#ofTokens(record)
    if (session !== undefined) session.movedAt = this.#clock.now
  }

  #ofTokens({ tokens }: StoredRecord): Session | undefined {
    const at = tokens.indexOf('"a":"at-') + 8
    return this.#byFamily.get(Number.parseInt(tokens.slice(at, tokens.indexOf('-', at)), 10))
  }

  deleted(server: RedisServer, key: RecordKey, reason: string): void {
    this.note(server.name, `record ${key.slice(0, 6)} ends: ${reason === '' ? 'no reason' : reason}`)
    const session = this.sessions.get(key)
    if (session === undefined) return
    const { now } = this.#clock
    if (this.superseded.has(server)) {
      // It began there after the failover: no other server has it.
      if (this.#recordOf(key) === null) session.deletedAt ??= now
      return
    }
    const lived = this.lives(session)
    session.deletedAt ??= now
    if (!lived || session.state !== 'alive') return
    if (reason === 'refused' && this.#isGranted(session.family))
      this.violated(
        'a session ends although a presentation of it was granted',
        `session ${session.family.id}`,
      )
    if (reason === 'refused' && session.causes.size === 0)
      this.violated('a session ends without a documented cause', `session ${session.family.id}: refused`)
    else if (reason === 'refused' && this.#wouldBeKept(session)) this.#notKept(session)
    else if (reason === 'refused') this.#lost(session)
    if (reason === 'idle' && this.#activityWasLost(session)) {
      this.#count('activity lost with a master or a process')
      return
    }
    if ((reason === 'idle' || reason === 'absolute') && !this.#settings.clocksStep) {
      const detail = `session ${session.family.id}: ${reason}, last used ${Math.round(now - session.lastActivityAt)} ms ago`
      this.violated('a session ends before its limit', detail)
    }
  }

  /** A living process may still receive new tokens, and the record says that their presentation is open. */
  #isGranted(family: Family): boolean {
    if (family.revoked) return false
    const { timeoutMs } = this.#settings
    return [...this.#open].some(({ token, issued, by, sentAt }) => {
      if (token.family !== family || issued === 0 || !by.alive) return false
      const mayBeLost =
        this.clockSteppedAt >= sentAt - timeoutMs || this.failedOverAt > sentAt - LAST_MOMENT_MS
      return !mayBeLost && this.#clock.now < sentAt - timeoutMs + resetAfterMs(this.#settings)
    })
  }

  /** Its newest activity was written to a master that was replaced then, or noted by a process that has died. */
  #activityWasLost({ lastActivityAt }: Session): boolean {
    const near = (at: number): boolean =>
      lastActivityAt < at + LAST_MOMENT_MS && lastActivityAt > at - LAST_MOMENT_MS
    return this.#disruptions.some(near)
  }

  /** A master was replaced: what was on the old one, and is not on the new one. */
  replaced(old: RedisServer, now: RedisServer, kept: boolean): void {
    this.superseded.add(old)
    this.failedOverAt = this.#clock.now
    this.#disruptions.push(this.failedOverAt)
    for (const session of this.sessions.values()) {
      const before = old.live(session.key)
      const after = now.live(session.key)
      if (before === null && after !== null && session.deletedAt !== null) {
        session.rolledBack = true
        this.#addCause(session, 'failover lost the end of a session')
        this.#count('failover lost the end of a session')
        continue
      }
      if (before === null) continue
      if (after === null || after.expireAt < before.expireAt - 3_600_000) {
        this.#addCause(session, kept ? 'session begun in the last moment of a master' : 'Redis lost its data')
        session.rolledBack = true
      } else if (serialOf(after.tokens) < serialOf(before.tokens)) {
        session.rolledBack = true
        session.storedSerial = serialOf(after.tokens)
        const writer = this.#granted.get(session.family)
        if (writer === undefined || !writer.by.alive)
          this.#addCause(session, 'failover lost the newest write with its process')
      }
    }
  }

  /** A process died, and its unsaved state is lost. */
  died(replica: Replica, gracefully: boolean): void {
    if (!gracefully) this.#disruptions.push(this.#clock.now)
    for (const presentation of [...this.#open]) if (presentation.by === replica) this.closed(presentation)
    for (const [family, presentation] of this.#granted) {
      if (presentation.by !== replica) continue
      const session = this.#byFamily.get(family.id)
      if (session === undefined || session.deletedAt !== null) continue
      const record = this.#recordOf(session.key)
      if (record === null || serialOf(record.tokens) >= presentation.issued) continue
      if (gracefully) this.#addCause(session, 'stopped while its tokens could not be stored')
      else if (session.rolledBack) this.#addCause(session, 'failover lost the newest write with its process')
      else this.#addCause(session, 'crash between rotation and store')
    }
  }

  /** Long after all faults: what a living process was granted is in the record of its session. */
  checkStored(): void {
    for (const [family, { by, issued, token, overAt }] of this.#granted) {
      const session = this.#byFamily.get(family.id)
      if (session === undefined || !by.alive || !this.lives(session)) continue
      if (overAt > this.#clock.now - COMMAND_MS) continue
      const record = this.#recordOf(session.key)
      if (record === null || serialOf(record.tokens) >= issued) continue
      this.violated('granted tokens were not stored', `${token.text}, granted to ${by.name}`)
    }
  }

  // What browsers see.

  tokenRefused(token: AccessToken): void {
    const session = this.#byFamily.get(token.family.id)
    if (session === undefined) return
    session.refusedSerial = Math.max(session.refusedSerial, token.serial)
    // One that had expired was refused rightly, and is no reason for 403.
    const wasAlive = this.#clock.now < token.expiresAt + SKEW_MS || this.#settings.clocksStep
    if (wasAlive) session.refusedAt = this.#clock.now
  }

  /** A browser learned that the resource server refuses the token of its session. */
  forbidden(session: Session, by: Replica, sentAt: number): void {
    if (session.refusedAt >= sentAt) return
    this.violated(
      '403 although the resource server refused nothing',
      `session ${session.family.id} by ${by.name}`,
    )
  }

  /** A token leaves for the resource server, for a call that came to this process at `receivedAt`. */
  used(token: AccessToken, by: Replica, receivedAt: number): void {
    const session = this.#byFamily.get(token.family.id)
    if (session === undefined) return
    const { now } = this.#clock
    const served = session.served.get(by)
    if (served !== undefined && served.serial > token.serial && served.at < receivedAt) {
      if (session.rolledBack || !by.commandsOf(session.key).followsMaster())
        this.#count('older token after a failover')
      else
        this.violated(
          'an older token is used after a newer one',
          `${token.text} by ${by.name}, serial ${served.serial} was used ${Math.round(now - served.at)} ms ago`,
        )
    }
    if (served === undefined || served.serial <= token.serial)
      session.served.set(by, { serial: token.serial, at: now })
    this.#checkEnded(session, by, receivedAt)
  }

  #checkEnded(session: Session, by: Replica, receivedAt: number): void {
    const { deletedAt } = session
    if (deletedAt === null || session.rolledBack) return
    const here = session.endedAt.get(by)
    const { now } = this.#clock
    // The read that proved it was sent before the end, and a call that has waited asks again.
    const { cacheMs } = this.#settings
    const endedHere = here !== undefined && here < receivedAt
    const waited = now - deletedAt - Math.max(cacheMs, COMMAND_MS) - by.stalledMsSince(deletedAt)
    if (!endedHere && receivedAt - deletedAt <= cacheMs && waited <= 0) return
    if (!by.commandsOf(session.key).followsMaster(Math.max(cacheMs, COMMAND_MS))) {
      this.#count('replica with a superseded master')
      return
    }
    const lateMs = [receivedAt, now].map((at) => Math.round(at - deletedAt)).join(' and ')
    const detail = `session ${session.family.id} by ${by.name}, received and sent ${lateMs} ms after its end`
    this.violated('an ended session is served', detail)
  }

  /** A browser learned that its session is over. */
  refused(session: Session, by: Replica, code: string): void {
    if (!this.lives(session)) return
    if (!by.commandsOf(session.key).followsMaster()) {
      this.#count('replica with a superseded master')
      return
    }
    this.#checkBegun(session)
    if (session.causes.size === 0) {
      const detail = `session ${session.family.id} by ${by.name}: ${code}`
      this.violated('a living session is refused', detail)
    } else this.#lost(session)
  }

  /** A session that began on a master that was superseded: no other server has it. */
  #checkBegun(session: Session): void {
    const began = [...this.superseded].some((old) => old.live(session.key) !== null)
    if (began && this.#recordOf(session.key) === null)
      this.#addCause(session, 'session begun in the last moment of a master')
  }

  #lost(session: Session): void {
    if (session.lossReported) return
    session.lossReported = true
    this.lost += 1
    const [cause] = session.causes
    if (cause !== undefined) this.#count(cause)
  }
}

/** The serial of the tokens in a sealed text, which the cheap keyring leaves readable. */
function serialOf(sealed: string): number {
  const at = sealed.indexOf('"a":"at-')
  if (at < 0) return 0
  const from = sealed.indexOf('-', at + 8) + 1
  return Number.parseInt(sealed.slice(from, sealed.indexOf('"', from)), 10)
}
