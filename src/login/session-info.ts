import type { FastifyReply, FastifyRequest } from 'fastify'
import { SESSION_FLOWS } from '../config/variables.ts'
import { type Problem, problem } from '../errors.ts'
import { recordKeyOf, type SessionCookies } from '../http/cookies.ts'
import { jsonResponse, problemOrPage, requestHeaders } from '../http/openapi.ts'
import { PATHS } from '../paths.ts'
import {
  DEVICE,
  END_REASONS,
  type Found,
  inLog,
  type NewSession,
  NO_COOKIE,
  notLiveProblem,
  type Vault,
} from '../vault/vault.ts'

/** The facts of a live session that a page may know; instants in ISO 8601, UTC. */
export type SessionFacts = (session: NewSession) => object

/** `defaultWac`: the default account code. */
export function createSessionFacts({
  defaultWac,
  now,
}: {
  defaultWac: string | null
  now: () => number
}): SessionFacts {
  return ({ key, record, tokens }) => ({
    authenticated: true,
    flow: record.flow,
    createdAt: iso(record.createdAt),
    idleExpiresAt: iso(record.idleEndsAt),
    expiresAt: iso(record.endsAt),
    accessTokenExpiresAt: iso(tokens.expiresAt),
    refreshable: tokens.refreshToken !== null,
    wac: defaultWac,
    user: tokens.user ?? null,
    now: iso(now()),
    sessionId: inLog(key),
    bound: record.bound,
  })
}

/** The problem for a request of a session whose device does not prove itself, else null. `bound`: by the record. */
export type RequireDevice = (request: FastifyRequest, bound: boolean) => Problem | null

const SIGNED_OUT = { authenticated: false, loginUrl: PATHS.login }

/** `GET /auth/session`: the facts of the caller's session. Does not extend it, and never sends a token. */
export function createSessionInfo({
  vault,
  cookies,
  requireDevice,
}: {
  vault: Pick<Vault, 'requireReads'>
  cookies: SessionCookies
  requireDevice: RequireDevice
}) {
  return async function sessionInfo(request: FastifyRequest, reply: FastifyReply): Promise<object> {
    const { state } = request.session
    if (state === undefined) {
      await vault.requireReads()
      return SIGNED_OUT
    }
    if (state.kind === 'unknown') throw state.cause
    if (state.kind !== 'live') return signedOut(state)
    const refused = requireDevice(request, state.bound)
    if (refused?.code === 'login_required') return { ...SIGNED_OUT, reason: DEVICE }
    if (refused) throw refused
    renewCookies(request, reply, cookies)
    return state.facts
  }
}

function signedOut(found: Exclude<Found, { kind: 'live' }>): object {
  if (found.kind === 'unreadable' || found.reason === null || found.at === null) return SIGNED_OUT
  return { ...SIGNED_OUT, ended: { reason: found.reason, at: iso(found.at) } }
}

/** `POST /auth/session`: the browser's user is active. Moves the idle limit, and never the absolute one. */
export function createStaySignedIn({
  vault,
  cookies,
  requireDevice,
}: {
  vault: Pick<Vault, 'stay'>
  cookies: SessionCookies
  requireDevice: RequireDevice
}) {
  return async function staySignedIn(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    // Activity is recorded without a look at the limits, so a session that has passed one must be found first.
    requireFacts(request, requireDevice)
    await vault.stay(recordKeyOf(request.session.sessionId))
    await request.session.reload()
    const facts = requireFacts(request, requireDevice)
    renewCookies(request, reply, cookies)
    return reply.send(facts)
  }
}

function requireFacts(request: FastifyRequest, requireDevice: RequireDevice): object {
  const { state } = request.session
  if (state === undefined) throw problem('login_required', NO_COOKIE)
  if (state.kind === 'unknown') throw state.cause
  if (state.kind !== 'live') throw notLiveProblem(state)
  const refused = requireDevice(request, state.bound)
  if (refused) throw refused
  return state.facts
}

/** Sets cookies again that an older secret has signed. */
function renewCookies(request: FastifyRequest, reply: FastifyReply, cookies: SessionCookies): void {
  if (!request.sessionCookie?.underOlderSecret) return
  const { sessionId, encryptedSessionId } = request.session
  cookies.setSession(reply, encryptedSessionId)
  cookies.setRecordKey(reply, recordKeyOf(sessionId))
}

const INSTANT = { type: 'string', format: 'date-time' }

const FACTS = {
  authenticated: { type: 'boolean', enum: [true] },
  flow: { type: 'string', enum: SESSION_FLOWS },
  createdAt: INSTANT,
  idleExpiresAt: INSTANT,
  expiresAt: INSTANT,
  accessTokenExpiresAt: INSTANT,
  refreshable: { type: 'boolean' },
  wac: { type: ['string', 'null'], description: 'The default account code.' },
  user: {
    type: ['object', 'null'],
    description: 'Who has signed in, where `OPERATIONS_FILE` has an identity and the platform answered.',
    required: ['id', 'name'],
    properties: { id: { type: 'string' }, name: { type: ['string', 'null'] } },
  },
  now: {
    ...INSTANT,
    description: 'The clock of the server, to count down whatever the clock of the browser says.',
  },
  bound: { type: 'boolean', description: 'Whether the session is bound to the device of this browser.' },
  sessionId: { type: 'string', pattern: '^[0-9a-f]{12}$', description: 'Names the session in the logs.' },
}

const UNAVAILABLE = { 503: problemOrPage('store_unavailable') }

export const SESSION_SCHEMA = {
  operationId: 'session',
  tags: ['session'],
  summary: 'Whether somebody is signed in, and until when',
  security: [{ session: [] }, {}],
  response: {
    200: jsonResponse('What is known of the session; it is not extended.', 'Session'),
    ...UNAVAILABLE,
  },
}

export const STAY_SCHEMA = {
  operationId: 'staySignedIn',
  tags: ['session'],
  summary: 'Record activity: moves the idle limit, never the absolute one',
  headers: requestHeaders(),
  response: {
    200: jsonResponse('The session with its new idle limit.', 'SignedInSession'),
    401: problemOrPage('login_required'),
    403: problemOrPage('cross_origin'),
    ...UNAVAILABLE,
  },
}

/** What the schemas of this folder's routes refer to. */
export const SHARED_SCHEMAS = [
  { $id: 'Session', oneOf: [{ $ref: 'SignedInSession#' }, { $ref: 'NoSession#' }] },
  { $id: 'SignedInSession', type: 'object', required: Object.keys(FACTS), properties: FACTS },
  { $id: 'EndReason', type: 'string', enum: END_REASONS, description: 'Why a session ended.' },
  {
    $id: 'SignInReason',
    type: 'string',
    enum: [...END_REASONS, DEVICE],
    description: 'Why the session ended; `device`: it is bound to another device than the one that asks.',
  },
  {
    $id: 'NoSession',
    type: 'object',
    required: ['authenticated', 'loginUrl'],
    properties: {
      authenticated: { type: 'boolean', enum: [false] },
      loginUrl: { type: 'string' },
      reason: {
        type: 'string',
        enum: [DEVICE],
        description: 'The session is bound to another device than the one that asks.',
      },
      ended: {
        type: 'object',
        description: "For an hour after this browser's session has ended.",
        required: ['reason', 'at'],
        properties: { reason: { $ref: 'EndReason#' }, at: INSTANT },
      },
    },
  },
]

function iso(epochMs: number): string {
  return new Date(epochMs).toISOString()
}
