import type { FastifyReply, FastifyRequest } from 'fastify'
import type { SessionFlow } from '../config/variables.ts'
import { type Problem, problem, unavailable } from '../errors.ts'
import { recordKeyOf, type SessionCookies } from '../http/cookies.ts'
import type { Keyring } from '../keyring.ts'
import { type Logger, type RequestInLog, requestInLog } from '../log.ts'
import { SIGN_INS_AT_ONCE } from '../oauth/client.ts'
import type { GrantedTokens, TokenOutcome } from '../oauth/token-response.ts'
import type { Secret } from '../secret.ts'
import {
  type DeviceRefresh,
  type Identify,
  inLog,
  type NewSession,
  type RecordKey,
  type User,
  type Vault,
} from '../vault/vault.ts'

/** Why a sign-in failed: label of `bff_sign_in_failures_total`. */
export type SignInFailure =
  | 'refused'
  | 'server_error'
  | 'login_failed'
  | 'unavailable'
  | 'store'
  | 'rate_limited'

/** What happens to sign-ins and devices, to be counted. */
export interface LoginEvents {
  signedIn(flow: SessionFlow, granted: GrantedTokens): void
  signInFailed(reason: SignInFailure): void
  /** A session is bound to its device from now on. */
  bound(): void
  deviceRefreshed(outcome: DeviceRefresh): void
}

/** Members of the problem that the browser gets instead of a session, for example `loginUrl`. */
export type Members = Record<string, string>

/**
 * Starts a session with these tokens in a route with a browser session, sets its cookies, and ends the session that this
 * browser had. Throws `store_unavailable` if the session cannot be stored; the tokens are then dropped and nothing
 * has changed.
 */
export type SignIn = (
  request: FastifyRequest,
  reply: FastifyReply,
  what: { tokens: GrantedTokens; flow: SessionFlow; members?: Members },
) => Promise<NewSession>

/** `signIn` over this vault, which revokes the tokens of a sign-in that could not be stored. */
export function createSignIn({
  vault,
  cookies,
  keyring,
  log,
  identify,
  observe,
}: {
  vault: Pick<Vault, 'begin' | 'abandon' | 'end' | 'revoke'>
  cookies: SessionCookies
  keyring: Pick<Keyring, 'digitsOf'>
  log: Logger
  /** null: the platform is not asked. */
  identify: Identify | null
  observe: Pick<LoginEvents, 'signedIn'>
}): SignIn {
  async function endReplaced(key: RecordKey, request: FastifyRequest): Promise<void> {
    try {
      await vault.end(key, 'replaced', { request: requestInLog(request) })
    } catch (error) {
      log.warn(
        { event: 'login.replaced_left', ...requestInLog(request), recordKey: inLog(key), err: error },
        'the previous session could not be ended',
      )
    }
  }

  async function whoIs(accessToken: Secret, request: FastifyRequest): Promise<User | null> {
    const answer = await identify?.(accessToken, request.id)
    if (answer === undefined) return null
    if (answer.kind === 'user') return answer.user
    log.warn(
      { event: 'login.unidentified', ...requestInLog(request), reason: answer.reason },
      'the platform did not say who has signed in: the session has no user',
    )
    return null
  }

  return async function signIn(request, reply, { tokens: granted, flow, members = {} }) {
    const replaced = cookies.recordKeyIn(request)
    const key = recordKeyOf(request.session.sessionId)
    const user = await whoIs(granted.accessToken, request)
    let session: NewSession
    try {
      session = await vault.begin(key, { ...granted, user }, flow)
      // Confirms the record. Without that the library sets no session cookie.
      await request.session.save()
    } catch (error) {
      vault.revoke(granted, key)
      // Either write may have succeeded although its reply was lost, and the session would be refreshed for hours.
      vault.abandon(key)
      log.error(
        { event: 'login.unsaved', ...requestInLog(request), recordKey: inLog(key), err: error },
        'a sign-in could not be stored, so the user must sign in again: check Redis',
      )
      throw unavailable('store_unavailable', 1, { cause: error, members })
    }
    cookies.setRecordKey(reply, key)
    observe.signedIn(flow, granted)
    const line = { event: 'login.succeeded', ...requestInLog(request), recordKey: inLog(key) }
    log.info(user === null ? line : { ...line, user: keyring.digitsOf('users', user.id) }, 'signed in')
    if (replaced !== null) await endReplaced(replaced, request)
    return session
  }
}

/**
 * Runs a token request of a sign-in, and what must precede it. Throws `authorization_server_unavailable`, with these
 * members, without running it if as many sign-ins as the client has connections for are at it.
 */
export type Redeem = <T>(members: Members, redemption: () => Promise<T>) => Promise<T>

/** `Redeem` for all sign-ins of this process. */
export function createRedeem(): Redeem {
  let running = 0
  return async function redeem(members, redemption) {
    if (running >= SIGN_INS_AT_ONCE) {
      throw unavailable('authorization_server_unavailable', RETRY_AFTER_SECONDS, {
        members,
        detail: 'Too many sign-ins are under way. Load this page again in a moment.',
        reason: `${SIGN_INS_AT_ONCE} sign-ins wait for the token endpoint: it is slow, or somebody floods the callback`,
      })
    }
    running += 1
    try {
      return await redemption()
    } finally {
      running -= 1
    }
  }
}

const RETRY_AFTER_SECONDS = 5
const NOT_SET_UP =
  'This server is not set up correctly for the platform. Trying again helps once the operator has corrected it: tell them the request number.'

/** An outcome without tokens. */
export type Failed = Exclude<TokenOutcome, { kind: 'granted' }>

/**
 * The tokens that a sign-in asked for. Without tokens it logs why and throws what the browser gets: `refused` if the
 * authorization server refuses the grant, or as `isRefused` has it, else a problem with these members.
 */
export function requireTokens(
  { cookies, log }: { cookies: SessionCookies; log: Logger },
  outcome: TokenOutcome,
  {
    refused,
    isRefused = () => false,
    members,
    request,
  }: {
    refused: Problem
    isRefused?: (outcome: Failed) => boolean
    members?: Members
    request: FastifyRequest
  },
): GrantedTokens {
  if (outcome.kind === 'granted') return outcome.tokens
  const { kind, reason, answer } = outcome
  const description = answer?.description ?? undefined
  const line = { event: 'login.failed', ...browserOf(request, cookies), outcome: kind, reason, description }
  if (kind === 'unavailable' && outcome.rejectsClient)
    log.error(line, 'the token endpoint rejects this client: see reason')
  else log.warn(line, 'the token endpoint issued no tokens for a sign-in')
  throw kind === 'refused' || isRefused(outcome) ? refused : failureProblem(outcome, members)
}

function failureProblem(
  outcome: Extract<TokenOutcome, { kind: 'unavailable' | 'in_doubt' }>,
  members: Members = {},
): Problem {
  if (outcome.timedOut) return problem('upstream_timeout', { members })
  if (outcome.kind === 'in_doubt' && !isReportedByServer(outcome.failedStatus)) {
    return problem('upstream_unavailable', { members })
  }
  const { retryAfterSeconds = null } = outcome.kind === 'unavailable' ? outcome : {}
  return unavailable('authorization_server_unavailable', retryAfterSeconds ?? RETRY_AFTER_SECONDS, {
    members,
    // The platform refuses what this server asks for, whoever signs in.
    ...(outcome.kind === 'unavailable' && (outcome.rejectsClient || outcome.ofThisGrant)
      ? { detail: NOT_SET_UP }
      : {}),
  })
}

/** The authorization server itself reports these; 502 and 504 come from a gateway that got no usable response. */
function isReportedByServer(status: number | undefined): boolean {
  return status === 500 || status === 501 || status === 503
}

/** The request of a sign-in that began no session, and the session that its browser has, if it has one. */
export function browserOf(
  request: FastifyRequest,
  cookies: SessionCookies,
): RequestInLog & { recordKey?: string } {
  const key = cookies.recordKeyIn(request)
  return key === null ? requestInLog(request) : { ...requestInLog(request), recordKey: inLog(key) }
}
