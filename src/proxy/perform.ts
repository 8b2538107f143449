import type { FastifyReply, FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import type { Caller, Callers } from './callers.ts'
import type { Call, Forwarder, Outcome } from './forward.ts'
import type { WacOptions } from './path-parts.ts'
import { mayUse } from './path-parts.ts'

/** What a validated request asks of the resource server. */
export type Operation = Pick<Call, 'method' | 'path' | 'accept' | 'contentType' | 'body' | 'jsonp'> & {
  name: 'GetFlux' | 'UpdateSite'
  wac: string
}

export interface PerformOptions {
  callers: Callers
  forwarder: Forwarder
  wac: WacOptions
  /** Told of each call upstream that came to an answer or a failure: seconds, and the status or 0. */
  observe: (operation: Operation['name'], status: number, seconds: number) => void
}

export type Perform = (
  request: FastifyRequest,
  reply: FastifyReply,
  operation: Operation,
) => Promise<FastifyReply>

/**
 * Makes a call with the caller's access token, and once more with a new one if the resource server
 * calls it invalid. Throws every problem that is ours to answer.
 */
export function createPerform({ callers, forwarder, wac, observe }: PerformOptions): Perform {
  return async function perform(request, reply, operation) {
    const { cookie } = request.headers
    let caller = callers.hit(cookie)
    const proceed = caller === null ? await callers.identify(cookie) : null
    if (!mayUse(operation.wac, wac)) throw problem('wac_not_allowed')
    caller ??= await proceed!()
    let outcome = await send(request, reply, operation, caller)
    if (outcome.kind === 'invalid_token') {
      caller = await callers.renew(caller, outcome.named)
      outcome = await send(request, reply, operation, caller)
      if (outcome.kind === 'invalid_token') throw await callers.giveUp(caller, outcome.named)
    }
    return conclude(request, reply, outcome)
  }

  async function send(
    request: FastifyRequest,
    reply: FastifyReply,
    operation: Operation,
    caller: Caller,
  ): Promise<Outcome> {
    const startedAt = performance.now()
    // Member by member: copying the rest of an object costs a fifth of the whole request here.
    const outcome = await forwarder.forward({
      method: operation.method,
      path: operation.path,
      accept: operation.accept,
      contentType: operation.contentType,
      body: operation.body,
      jsonp: operation.jsonp,
      request: request.raw,
      response: reply.raw,
      authorization: caller.authorization,
      requestId: request.id,
    })
    observe(operation.name, 'status' in outcome ? outcome.status : 0, (performance.now() - startedAt) / 1_000)
    return outcome
  }
}

/** Hands an answer that was relayed over to nobody, and throws the problem for one that was not. */
function conclude(request: FastifyRequest, reply: FastifyReply, outcome: Outcome): FastifyReply {
  switch (outcome.kind) {
    case 'finished':
    case 'client_gone':
    case 'cut':
      return reply.hijack()
    case 'upstream_error': {
      const headers = outcome.retryAfter === null ? {} : { 'retry-after': outcome.retryAfter }
      throw problem('upstream_error', { status: outcome.status, headers })
    }
    case 'unusable':
      request.log.warn(
        { event: 'upstream.unusable', reason: outcome.reason, reqId: request.id },
        'unusable answer',
      )
      throw problem('upstream_unavailable')
    case 'unavailable':
      throw problem('upstream_unavailable', { cause: outcome.cause })
    case 'timeout':
      throw problem('upstream_timeout')
    case 'invalid_token':
      throw problem('upstream_refused')
  }
}
