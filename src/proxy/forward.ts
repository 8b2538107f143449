import type { FastifyReply, FastifyRequest } from 'fastify'
import { Problem, problem } from '../errors.ts'
import { networkOf } from '../http/network-of.ts'
import { type Logger, requestInLog } from '../log.ts'
import type { Caller, CallerSource, Callers } from '../vault/vault.ts'
import type { ApplicationCallers } from './application-caller.ts'
import { overloaded } from './body-budget.ts'
import { type AccountRules, type Call, checkAccount, type OutgoingRequest } from './outgoing-request.ts'
import type { ResourceClient } from './resource-client.ts'
import type { Failure } from './response-rules.ts'
import type { StoreWait } from './store-wait.ts'

type Sender = Pick<ResourceClient, 'send'>

export interface ForwardOptions {
  callers: Callers
  /** How reads wait for a store that is away; all else does not. */
  storeWait: StoreWait
  resourceClient: Sender
  /** The application's calls, over connections of their own; null: every request needs a session. */
  application: { callers: ApplicationCallers; resourceClient: Sender } | null
  accounts: AccountRules
  /** Receives each call that ended: seconds, and the status of the response or 0. */
  observe: (operation: string, status: number, seconds: number) => void
  log: Logger
}

/**
 * Serves a browser's request from the resource server: finds the caller, sends, and sends again after a forced
 * refresh if the resource server refused the token. If the new token has expired when it is refused, it is refreshed once
 * more, so there are at most three calls; if the third one has expired too, the browser gets 504. Throws the problems that are
 * known at once.
 */
export type Forward = (request: FastifyRequest, reply: FastifyReply, outgoing: OutgoingRequest) => void

/** One browser's request, the same object for all its calls. */
interface Forwarding<C> {
  readonly request: FastifyRequest
  readonly reply: FastifyReply
  readonly outgoing: OutgoingRequest
  readonly source: CallerSource<C>
  readonly resourceClient: Sender
  /** Whose share of the connections the calls use: a session, or a client address. */
  readonly holder: string
  calls: number
}

/** Every caller has a ready `Bearer …` value. */
type Authorized = { readonly authorization: string }

export function createForward(options: ForwardOptions): Forward {
  const { callers, storeWait, application, resourceClient, accounts, observe, log } = options

  // No promise for a cached caller: each costs as much as a step of the work itself.
  return function forward(request, reply, outgoing) {
    request.target = outgoing
    const caller = callers.cached(request.headers.cookie)
    if (caller === null) {
      findAndSend(request, reply, outgoing).catch((error: unknown) => refuse(reply, error))
      return
    }
    checkAccount(outgoing.wac, accounts)
    noteActivity(request, caller)
    send({ request, reply, outgoing, source: callers, resourceClient, holder: caller.key, calls: 0 }, caller)
  }

  async function findAndSend(
    request: FastifyRequest,
    reply: FastifyReply,
    outgoing: OutgoingRequest,
  ): Promise<void> {
    let caller: Caller
    try {
      caller = await whenStoreIsThere(request, reply, () => findCaller(request, outgoing))
    } catch (error) {
      if (!lacksSession(error) || !application?.callers.mayRead(outgoing)) throw error
      checkAccount(outgoing.wac, accounts)
      const { callers: source, resourceClient } = application
      const holder = networkOf(request.ip)
      const found = await source.find()
      return send({ request, reply, outgoing, source, resourceClient, holder, calls: 0 }, found)
    }
    checkAccount(outgoing.wac, accounts)
    noteActivity(request, caller)
    send({ request, reply, outgoing, source: callers, resourceClient, holder: caller.key, calls: 0 }, caller)
  }

  /** 401 comes before the 403 of an account, and that before what store and tokens bring. */
  async function findCaller(request: FastifyRequest, outgoing: OutgoingRequest): Promise<Caller> {
    const skipped = request.headers['secure-session-skipped'] !== undefined
    try {
      return await callers.find(request.headers.cookie, { request: requestInLog(request), skipped })
    } catch (error) {
      if (!lacksSession(error)) checkAccount(outgoing.wac, accounts)
      throw error
    }
  }

  function whenStoreIsThere<T extends object>(
    { method }: FastifyRequest,
    { raw }: FastifyReply,
    ask: () => Promise<T>,
  ): Promise<T> {
    return method === 'GET' || method === 'HEAD' ? storeWait(raw, ask) : ask()
  }

  /** Not of a timer of the page: one that polls would keep its user signed in until the absolute limit. */
  function noteActivity({ headers }: FastifyRequest, caller: Caller): void {
    if (headers['x-activity'] !== 'none') callers.noteActivity(caller)
  }

  function send<C extends Authorized>(forwarding: Forwarding<C>, caller: C): void {
    const { request, reply, outgoing, source, resourceClient, holder } = forwarding
    forwarding.calls += 1
    const startedAt = performance.now()
    const call: Call = {
      outgoing,
      request: request.raw,
      response: reply.raw,
      hijack: () => void reply.hijack(),
      authorization: caller.authorization,
      holder,
      requestId: request.id,
      traceparent: null,
      isProven: () => source.isProven(caller),
      prove: () => source.prove(caller),
    }
    resourceClient.send(call, (outcome) => {
      if (outcome.kind === 'withdrawn') {
        forwarding.calls -= 1
        again(forwarding, caller, callerNow(forwarding, caller, outcome.error))
        return
      }
      const status = 'status' in outcome ? outcome.status : 0
      observe(outgoing.operation, status, (performance.now() - startedAt) / 1_000)
      switch (outcome.kind) {
        case 'finished':
        case 'client_gone':
        case 'cut':
          return
        case 'crowded':
          reply.send(problem('rate_limited', CROWDED))
          return
        case 'full':
          reply.send(overloaded())
          return
        case 'stalled':
          reply.send(problem('request_timeout'))
          return
        case 'token_refused': {
          const expired = source.hasExpired(caller)
          const mayRefresh = forwarding.calls === 1 || (expired && forwarding.calls === 2)
          if (mayRefresh || outgoing.uploadLength !== null)
            again(
              forwarding,
              caller,
              whenStoreIsThere(request, reply, () =>
                source.forceRefresh(caller, outcome.namesInvalidToken, requestInLog(request)),
              ),
            )
          else reply.send(problem(expired ? 'upstream_timeout' : 'upstream_refused'))
          return
        }
        default:
          if (outcome.kind === 'unusable') {
            const line = { event: 'upstream.unusable', reason: outcome.reason, reqId: request.id }
            log.warn(line, 'the resource server sent a response that must not be relayed')
          }
          reply.send(problemOf(outcome))
      }
    })
  }

  /** The caller that the session has now. `failure`: the error of a question that has just failed, with which the wait begins; or null. */
  function callerNow<C extends Authorized>(
    { request, reply, source }: Forwarding<C>,
    caller: C,
    failure: unknown,
  ): Promise<C> {
    let failed = failure
    return whenStoreIsThere(request, reply, async () => {
      if (failed === null) return await source.current(caller, requestInLog(request))
      const error = failed
      failed = null
      throw error
    })
  }

  /** Sends with the caller that takes the place of `before`. An upload is gone, so the page sends it again. */
  function again<C extends Authorized>(forwarding: Forwarding<C>, before: C, found: Promise<C>): void {
    const { reply, outgoing } = forwarding
    found
      .then((caller) => {
        if (outgoing.uploadLength === null) send(forwarding, caller)
        // One renewal a minute: the newest token was refused as well.
        else if (caller.authorization === before.authorization) throw problem('upstream_refused')
        else throw problem('token_refreshed', AT_ONCE)
      })
      .catch((error: unknown) => refuse(reply, error))
  }
}

function lacksSession(error: unknown): boolean {
  return error instanceof Problem && error.code === 'login_required'
}

/** A browser that has left has its line in the log already. */
function refuse(reply: FastifyReply, error: unknown): void {
  if (!reply.raw.closed) reply.send(error)
}

const AT_ONCE = { headers: { 'retry-after': '0' } }

const CROWDED = {
  detail: 'Too many of your calls are under way. Try again when one has ended.',
  headers: { 'retry-after': '1' },
}

function problemOf(failure: Failure): Problem {
  switch (failure.kind) {
    case 'upstream_error': {
      const headers = failure.retryAfter === null ? {} : { 'retry-after': failure.retryAfter }
      return problem('upstream_error', { status: failure.status, headers })
    }
    case 'unusable':
      return problem('upstream_unavailable')
    case 'unavailable':
      return problem('upstream_unavailable', { cause: failure.cause })
    case 'timeout':
      return problem('upstream_timeout')
  }
}
