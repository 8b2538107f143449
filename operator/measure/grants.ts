import { randomUUID } from 'node:crypto'
import { SYSTEM_CLOCK } from '../../src/clock.ts'
import type { Config } from '../../src/config/config.ts'
import type { GrantedTokens, TokenOutcome } from '../../src/oauth/token-response.ts'
import { Secret } from '../../src/secret.ts'
import { additionTo } from '../addition.ts'
import { type Draft, notMeasured, type Report } from '../report.ts'
import { type Acceptance, type Guard, SILENT } from './measure.ts'
import type { Operator } from './operator.ts'
import { reasonOf, type SignedIn, type SignIns } from './sign-in.ts'

/** Tokens of this run, which are ended when all is measured. */
export interface Held {
  accessToken: Secret
  /** The newest one of its sign-in. */
  refreshToken: Secret | null
  expiresAt: number
}

interface Context {
  config: Config
  report: Report
  signIns: SignIns
}

/** What a refresh does to the refresh token. */
interface Rotation {
  readonly held: Held
  /** Whether it brings a new one and uses up the old one. */
  readonly rotates: boolean
}

interface Refreshing {
  /** null: there are no tokens. */
  readonly rotation: Rotation | null
  /** The outcome of the first refresh; null: there was no refresh token. */
  readonly good: TokenOutcome | null
}

/**
 * One refresh: does the refresh token change, and does the access token from before still work? One that brings no new
 * refresh token is followed by another with the same, as the server itself would.
 */
export async function measureRefresh(
  { report, signIns }: Context,
  { tokens }: SignedIn,
  guard: Guard,
  hold: (held: Held) => void,
): Promise<Refreshing> {
  const before = tokens.refreshToken
  if (before === null) return { rotation: null, good: null }
  const { outcome, response } = await signIns.refresh(before)
  if (outcome.kind !== 'granted') {
    report.add('rotation', {
      verdict: 'fault',
      value: outcome.kind,
      message: `a refresh brings no tokens: ${reasonOf(outcome)}`,
    })
    return { rotation: null, good: outcome }
  }
  const { tokens: fresh } = outcome
  const rotates = fresh.refreshToken !== null && fresh.refreshToken.reveal() !== before.reveal()
  const held = heldOf(fresh, before)
  hold(held)
  if (fresh.refreshToken !== null)
    report.add('rotation', {
      value: rotates,
      message: rotates
        ? 'a refresh brings a new refresh token'
        : `a refresh leaves the refresh token as it is: ${ENDS_WITH_IT}`,
    })
  const life = response?.expires_in
  if (life !== undefined && fresh.lifeSeconds !== tokens.lifeSeconds)
    report.add('expires_in refreshed', {
      value: fresh.lifeSeconds,
      message: `after a refresh an access token lives ${report.quote(String(life))} seconds, not as after a sign-in`,
    })
  report.add('old access token', describeOld(guard, await guard.accepts(tokens)))
  if (fresh.refreshToken !== null) return { rotation: { held, rotates }, good: outcome }

  const again = await signIns.refresh(before)
  if (again.outcome.kind !== 'granted' && !isRefusal(again.outcome)) {
    report.add('rotation', noVerdict(again.outcome))
    return { rotation: null, good: outcome }
  }
  if (again.outcome.kind !== 'granted') {
    report.add('rotation', {
      verdict: 'fault',
      value: 'last use',
      message: `a refresh brings no refresh token, and ends the one that was presented (${reasonOf(again.outcome)}): a session lasts two access tokens. Let the server issue a new refresh token with each refresh`,
    })
    return { rotation: { held: { ...held, refreshToken: null }, rotates: false }, good: outcome }
  }
  report.add('rotation', {
    value: false,
    message: `a refresh brings no refresh token, and leaves the old one as it is: ${ENDS_WITH_IT}`,
  })
  const newest = heldOf(again.outcome.tokens, before)
  hold(newest)
  return { rotation: { held: newest, rotates: false }, good: outcome }
}

const ENDS_WITH_IT = 'a session ends with it, whatever SESSION_MAX_SECONDS says'

function heldOf({ accessToken, refreshToken, expiresAt }: GrantedTokens, before: Secret): Held {
  return { accessToken, refreshToken: refreshToken ?? before, expiresAt }
}

function describeOld(guard: Guard, old: Acceptance): Draft {
  if (guard.closed !== null) return notMeasured(guard.closed)
  if (old === 'silent') return notMeasured(SILENT)
  if (old === 'expired') return notMeasured(EXPIRED)
  if (old === 'unknown') return { verdict: 'warning', value: 'unknown', message: UNKNOWN }
  if (old === 'accepted') return { value: true, message: 'still works after a refresh' }
  return guard.isRecognised
    ? {
        value: false,
        message: 'ends with a refresh: calls under way then are repeated once with the new one',
      }
    : {
        verdict: 'warning',
        value: false,
        message:
          'ends with a refresh, and the refusal is not recognised (invalid_token): calls under way then fail',
      }
}

const UNKNOWN =
  'not measured: the response does not show whether the token is accepted. Give --flux WAC/ID of a flux that this account may read'

const EXPIRED = 'the access token has expired meanwhile. Run this again, without a pause'

/**
 * Whether one more sign-in of the same user ends the tokens from before. Where their refresh token brought none
 * (`rotation` is null), it is not presented again: its access token alone is looked at.
 */
export async function measureSecondSignIn(
  { report, signIns }: Context,
  { tokens }: SignedIn,
  rotation: Rotation | null,
  guard: Guard,
  hold: (held: Held) => void,
): Promise<void> {
  const before = rotation?.held ?? { ...tokens, refreshToken: null }
  const check = 'second sign-in'
  report.say('Once more, as the same user, to see whether a second device ends the first:')
  const second = await signIns.signIn()
  if (second === null) return
  hold(second.tokens)
  const access = await guard.accepts(before)
  const refresh = before.refreshToken === null ? null : (await signIns.refresh(before.refreshToken)).outcome
  if (refresh?.kind === 'granted') hold(heldOf(refresh.tokens, before.refreshToken!))
  const hasNone = rotation === null && tokens.refreshToken !== null
  report.add(
    check,
    hasNone && access !== 'accepted'
      ? notMeasured('a refresh has brought no tokens before')
      : describeSecond(access, refresh, guard),
  )
}

type NotGranted = Exclude<TokenOutcome, { kind: 'granted' }>

function describeSecond(access: Acceptance, refresh: TokenOutcome | null, guard: Guard): Draft {
  if (refresh !== null && refresh.kind !== 'granted' && !isRefusal(refresh)) return noVerdict(refresh)
  if (refresh === null) return describeSecondAccess(access, guard)
  if (refresh.kind === 'granted') {
    if (access === 'refused')
      return {
        verdict: guard.isRecognised ? 'ok' : 'warning',
        value: 'ends access',
        message: `the access token from before ends, and its refresh token still works: the older device of a user gets a new one ${guard.isRecognised ? 'at its next call' : 'at its next refresh, and its calls fail until then, since the refusal is not recognised (invalid_token)'}`,
      }
    const kept =
      access === 'accepted'
        ? 'tokens from before still work'
        : `refresh token from before still works, and ${NOT_SEEN}`
    return { value: 'keeps', message: `the ${kept}: a user may have several devices` }
  }
  if (access !== 'refused') {
    const other = access === 'accepted' ? 'the access token still works' : NOT_SEEN
    return {
      verdict: 'warning',
      value: 'ends refresh',
      message: `the refresh token from before does not work (${reasonOf(refresh)}), and ${other}: the older device of a user is signed out at its next refresh`,
    }
  }
  return ENDS
}

const NOT_SEEN = 'whether the access token does was not seen'

const ENDS: Draft = {
  verdict: 'warning',
  value: 'ends',
  message:
    'ends the tokens from before: two devices of one user sign each other out in turn, with the reason refused',
}

/** Where no refresh token can be presented. */
function describeSecondAccess(access: Acceptance, guard: Guard): Draft {
  if (guard.closed !== null) return notMeasured(guard.closed)
  switch (access) {
    case 'accepted':
      return {
        value: 'keeps',
        message: 'the access token from before still works: a user may have several devices',
      }
    case 'silent':
      return notMeasured(SILENT)
    case 'expired':
      return notMeasured(EXPIRED)
    case 'unknown':
      return { verdict: 'warning', value: 'unknown', message: UNKNOWN }
    case 'refused':
      return ENDS
  }
}

/** Whether the token endpoint refuses this grant, in whatever words. A failure of its own says nothing about the grant. */
function isRefusal(outcome: NotGranted): boolean {
  if (outcome.kind !== 'unavailable') return outcome.kind === 'refused'
  const { status = 0 } = outcome.answer ?? {}
  return outcome.rejectsClient !== true && status >= 400 && status <= 499 && ![401, 429].includes(status)
}

function noVerdict(outcome: NotGranted): Draft {
  const what = isRefusal(outcome) ? 'refuses a refresh' : 'failed'
  return notMeasured(`the token endpoint ${what} meanwhile (${reasonOf(outcome)}). Run this again`)
}

/**
 * What the token endpoint says to a refresh token that it never issued, and whether that would end a session. `good`: what
 * it has said to a good one. null: the answer shows nothing about a dead grant, and the report says why.
 */
export async function measureRefusedGrant(
  { config, report, signIns }: Context,
  good: TokenOutcome | null,
): Promise<TokenOutcome | null> {
  const { outcome } = await signIns.refresh(new Secret(`doctor-${randomUUID()}`))
  const nothing = outcome.kind === 'granted' ? null : whyNothing(outcome, good)
  report.add('refused grant', nothing ?? describeRefused(outcome, config.oauth.refusedGrants))
  return nothing === null ? outcome : null
}

function whyNothing(outcome: NotGranted, good: TokenOutcome | null): Draft | null {
  if (hasFailed(outcome)) return noVerdict(outcome)
  if (good === null)
    return outcome.kind === 'refused'
      ? null
      : notMeasured(`there is no refresh token to compare with (${reasonOf(outcome)})`)
  return good.kind !== 'granted' && isSameAnswer(good, outcome)
    ? notMeasured(`a good refresh token gets the same answer (${reasonOf(outcome)})`)
    : null
}

/** Whether the token endpoint failed or limits the rate, or nothing came: that says nothing about what was presented. */
function hasFailed({ answer }: NotGranted): boolean {
  return answer === undefined || answer.status === 429 || answer.status >= 500
}

function isSameAnswer({ answer: one }: NotGranted, { answer: other }: NotGranted): boolean {
  return one?.status === other?.status && one?.code === other?.code
}

function describeRefused(outcome: TokenOutcome, known: Config['oauth']['refusedGrants']): Draft {
  if (outcome.kind === 'granted')
    return {
      verdict: 'warning',
      value: 'granted',
      message: 'a refresh token that was never issued is granted tokens',
    }
  const words = reasonOf(outcome)
  if (outcome.kind === 'refused') return { value: outcome.reason, message: `is recognised: ${words}` }
  const own = refusedGrantOf(outcome)
  const added = own === null ? null : additionTo('OAUTH_REFUSED_GRANT', own, known)
  return {
    verdict: 'warning',
    value: outcome.reason,
    message: `is not recognised (${words}): a session whose grant has ended is not signed out, and its calls get 503${added?.words ?? ''}`,
    setting: added?.setting ?? null,
  }
}

/** The value of OAUTH_REFUSED_GRANT that names this answer; null where none may. */
function refusedGrantOf({ answer }: NotGranted): string | null {
  if (answer === undefined) return null
  const { status, code, isEmpty } = answer
  if (status < 400 || status > 499 || status === 429 || status === 401) return null
  if (code !== null && (!/^[a-z_]{1,64}$/.test(code) || /^(invalid|unauthorized)_client$/.test(code)))
    return null
  return code === null && !isEmpty ? null : `${status}:${code ?? 'empty'}`
}

/**
 * Where a dead grant is known by another word than invalid_grant: whether a wrong secret is answered by the same one.
 * Presents the last refresh token of a sign-in, with a secret that is wrong. `isOver`: that sign-in may have ended.
 */
export async function measureWrongSecret(
  { report, signIns }: Context,
  refused: TokenOutcome,
  { last, isOver }: { last: Held | undefined; isOver: boolean },
): Promise<void> {
  if (refused.kind === 'granted' || refused.answer?.code === 'invalid_grant') return
  if (last === undefined || last.refreshToken === null) return
  const { outcome } = await signIns.refresh(last.refreshToken, new Secret(`doctor-${randomUUID()}`))
  if (outcome.kind === 'granted')
    return report.add('wrong secret', {
      verdict: 'warning',
      value: 'granted',
      message: 'a wrong secret is accepted: register the client as confidential',
    })
  if (hasFailed(outcome)) return report.add('wrong secret', noVerdict(outcome))
  const isSame = isSameAnswer(outcome, refused)
  if (isSame && isOver)
    return report.add(
      'wrong secret',
      notMeasured(
        'the grant may have ended before, with the reuse of a refresh token. Run this again, without it',
      ),
    )
  report.add(
    'wrong secret',
    isSame
      ? {
          verdict: 'warning',
          value: 'same',
          message:
            'looks the same as a dead grant: with OAUTH_REFUSED_GRANT a secret that is rolled out wrongly ends every session that refreshes',
        }
      : { value: outcome.reason, message: `gets another answer: ${reasonOf(outcome)}` },
  )
}

/**
 * Seconds after its first use at which a used refresh token is presented again: one less than the periods that servers
 * are given, since the server has counted from before its answer came.
 */
const DELAYS = [0, 9, 29, 59, 179, 299]

/**
 * For how long a used refresh token is granted again. Asks first: a server that detects reuse ends the sign-in. `newest`:
 * the tokens that came last. Its refresh token is used up here, so that nobody has used what came for it meanwhile.
 * Resolves with whether that sign-in may have ended.
 */
export async function measureReuse(
  context: Context & { operator: Operator },
  { rotation, newest }: { rotation: Rotation | null; newest: Held | undefined },
  hold: (held: Held) => void,
  delays: readonly number[] = DELAYS,
): Promise<boolean> {
  const check = 'refresh token reuse'
  const { config, report, operator } = context
  const used = newest?.refreshToken ?? null
  if (rotation === null || rotation.held.refreshToken === null || used === null) return false
  if (!rotation.rotates) {
    report.add(check, {
      value: 3_600,
      message: 'the refresh token stays good, so a replica that dies during a refresh costs no session',
      setting: config.refresh.reuseSeconds === 3_600 ? null : 'OAUTH_REUSE_SECONDS=3600',
    })
    return false
  }
  report.say(
    `May a used refresh token be presented again, to see for how long it is granted (up to ${Math.ceil(delays.at(-1)! / 60)} minutes)? A server that detects reuse then ends a sign-in of this run. Type yes to go on:`,
  )
  if ((await operator.answer()) !== 'yes') {
    report.add(check, { value: 'skipped', message: 'not measured: the answer was not yes' })
    return false
  }
  const { draft, isOver } = await presentAgain(context, used, hold, delays)
  report.add(check, draft)
  return isOver
}

/** Uses a refresh token, and presents it again. `isOver`: an answer was no grant, so the sign-in may have ended. */
async function presentAgain(
  { config, signIns, operator }: Context & { operator: Operator },
  used: Secret,
  hold: (held: Held) => void,
  delays: readonly number[],
): Promise<{ draft: Draft; isOver: boolean }> {
  const { outcome: first } = await signIns.refresh(used)
  const usedAt = SYSTEM_CLOCK.monotonic()
  if (first.kind !== 'granted') return { draft: noVerdict(first), isOver: true }
  hold(heldOf(first.tokens, used))
  let longest: number | null = null
  let refusedAfter = Number.POSITIVE_INFINITY
  let isOver = false
  for (const delay of delays) {
    await operator.unlessStopped(waitUntil(usedAt + delay * 1_000))
    const after = Math.floor((SYSTEM_CLOCK.monotonic() - usedAt) / 1_000)
    const { outcome } = await signIns.refresh(used)
    if (outcome.kind !== 'granted') {
      if (!isRefusal(outcome) && longest === null) return { draft: noVerdict(outcome), isOver: true }
      if (isRefusal(outcome)) refusedAfter = after
      isOver = true
      break
    }
    hold(heldOf(outcome.tokens, used))
    longest = after
  }
  return {
    draft: describeReuse({ longest, refusedAfter, reuseSeconds: config.refresh.reuseSeconds }),
    isOver,
  }
}

/** `longest`: seconds after which it was granted at last, null for never; `reuseSeconds`: OAUTH_REUSE_SECONDS as it is. */
function describeReuse({
  longest,
  refusedAfter,
  reuseSeconds,
}: {
  longest: number | null
  refusedAfter: number
  reuseSeconds: number
}): Draft {
  const value = longest ?? 'refused'
  // What was seen leaves open how it is between the last grant and the first refusal.
  const isTooLong = reuseSeconds > 0 && reuseSeconds >= refusedAfter
  const isTooShort = reuseSeconds < (longest ?? 0)
  const setting = isTooLong || isTooShort ? `OAUTH_REUSE_SECONDS=${longest ?? 0}` : null
  const verdict = isTooLong ? 'warning' : 'ok'
  const after = isTooLong ? `: with OAUTH_REUSE_SECONDS=${reuseSeconds} sessions may end` : ''
  return {
    verdict,
    value,
    message: `a used refresh token is ${wordsOf(longest, refusedAfter)}${after}`,
    setting,
  }
}

function wordsOf(longest: number | null, refusedAfter: number): string {
  if (longest === null)
    return 'refused: a replica that is killed during a refresh costs its session, unless the server has a grace period that can be set'
  const refused =
    refusedAfter === Number.POSITIVE_INFINITY ? '' : `, and refused ${refusedAfter} seconds after its use`
  if (longest > 0) return `granted again for at least ${longest} seconds${refused}`
  return refused === ''
    ? 'granted again at once, and for how long was not seen'
    : `granted again at once${refused}: the server counts the uses, or its grace period is shorter`
}

async function waitUntil(instant: number): Promise<void> {
  // A timer may fire a little early.
  for (let ms = instant - SYSTEM_CLOCK.monotonic(); ms > 0; ms = instant - SYSTEM_CLOCK.monotonic())
    await new Promise((resolve) => setTimeout(resolve, Math.ceil(ms)))
}
