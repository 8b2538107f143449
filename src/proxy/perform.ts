import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Problem } from '../errors.ts'
import { problem } from '../errors.ts'
import type { Logger } from '../log.ts'
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
  log: Logger
}

/**
 * Makes a call with the caller's access token, and once more with a new one if the resource server
 * calls it invalid. Throws the problems that are known at once and answers with the others.
 */
export type Perform = (request: FastifyRequest, reply: FastifyReply, operation: Operation) => void

export function createPerform({ callers, forwarder, wac, observe, log }: PerformOptions): Perform {
  // No promise on the way of a caller who is known: each costs as much as a step of the work itself.
  return function perform(request, reply, operation) {
    const caller = callers.hit(request.headers.cookie)
    if (caller === null) {
      callFor(request, reply, operation).catch((fault: unknown) => reply.send(fault))
      return
    }
    if (!mayUse(operation.wac, wac)) throw problem('wac_not_allowed')
    call(request, reply, operation, caller)
  }

  async function callFor(request: FastifyRequest, reply: FastifyReply, operation: Operation): Promise<void> {
    const proceed = await callers.identify(request.headers.cookie)
    if (!mayUse(operation.wac, wac)) throw problem('wac_not_allowed')
    call(request, reply, operation, await proceed())
  }

  function call(request: FastifyRequest, reply: FastifyReply, operation: Operation, caller: Caller): void {
    send(request, reply, operation, caller, (outcome) => {
      if (outcome.kind !== 'invalid_token') return conclude(request, reply, outcome)
      callAgain(request, reply, operation, caller, outcome.named).catch((fault: unknown) => reply.send(fault))
    })
  }

  async function callAgain(
    request: FastifyRequest,
    reply: FastifyReply,
    operation: Operation,
    refused: Caller,
    named: boolean,
  ): Promise<void> {
    const caller = await callers.renew(refused, named)
    send(request, reply, operation, caller, (outcome) => {
      if (outcome.kind !== 'invalid_token') return conclude(request, reply, outcome)
      const answer = (fault: unknown): void => void reply.send(fault)
      callers.giveUp(caller, outcome.named).then(answer, answer)
    })
  }

  function send(
    request: FastifyRequest,
    reply: FastifyReply,
    operation: Operation,
    caller: Caller,
    settle: (outcome: Outcome) => void,
  ): void {
    const startedAt = performance.now()
    // Member by member: copying the rest of an object costs a fifth of the whole request here.
    const parts = {
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
    }
    forwarder.forward(parts, (outcome) => {
      const status = 'status' in outcome ? outcome.status : 0
      observe(operation.name, status, (performance.now() - startedAt) / 1_000)
      settle(outcome)
    })
  }

  function conclude(
    request: FastifyRequest,
    reply: FastifyReply,
    outcome: Exclude<Outcome, { kind: 'invalid_token' }>,
  ): void {
    if (outcome.kind === 'unusable') {
      const { reason } = outcome
      log.warn({ event: 'upstream.unusable', reason, reqId: request.id }, 'unusable answer')
    }
    const fault = faultOf(outcome)
    if (fault === null) reply.hijack()
    else reply.send(fault)
  }
}

/** What to answer; null for an answer that was relayed, or that nobody waits for. */
function faultOf(outcome: Exclude<Outcome, { kind: 'invalid_token' }>): Problem | null {
  switch (outcome.kind) {
    case 'finished':
    case 'client_gone':
    case 'cut':
      return null
    case 'upstream_error': {
      const headers = outcome.retryAfter === null ? {} : { 'retry-after': outcome.retryAfter }
      return problem('upstream_error', { status: outcome.status, headers })
    }
    case 'unusable':
      return problem('upstream_unavailable')
    case 'unavailable':
      return problem('upstream_unavailable', { cause: outcome.cause })
    case 'timeout':
      return problem('upstream_timeout')
  }
}
