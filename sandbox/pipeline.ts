import { setMaxListeners } from 'node:events'
import type { FastifyReply } from 'fastify'
import type { Endpoint, FaultSwitches, TakenFault } from './faults.ts'
import type { Gates } from './gates.ts'
import type { Journal, JournalEntry } from './journal.ts'
import {
  firstHalf,
  oauthError,
  type SandboxResponse,
  send,
  sendHalf,
  textResponse,
  withHeaders,
} from './response.ts'

interface PipelineRequest {
  endpoint: Endpoint
  entry: JournalEntry
  reply: FastifyReply
  /** Does what was asked and builds the right response. Runs in one go, so requests never mix. */
  work: () => SandboxResponse
  /** The response to an invalid access token, for the fault `invalid-token`. */
  invalidToken?: () => SandboxResponse
}

export type Pipeline = ReturnType<typeof createPipeline>

/** Processes each request in this order: gate, fault, work, gate, fault, response. */
export function createPipeline({
  gates,
  faults,
  journal,
  closing,
}: {
  gates: Gates
  faults: FaultSwitches
  journal: Journal
  /** Ends what hangs or waits when the sandbox stops. */
  closing: AbortSignal
}) {
  // One listener for each slow response in progress.
  setMaxListeners(0, closing)

  async function handle({ endpoint, entry, reply, work, invalidToken }: PipelineRequest): Promise<void> {
    await gates.pass(endpoint, 'before', entry)
    const fault = faults.take(endpoint, entry.kind)
    if (fault.mode !== 'ok') journal.recordFault(entry, fault.mode)
    const point = pointOf(fault)
    if (fault.mode === 'slow' && point === 'before') await elapsed(fault.ms)

    const instead = substitute(fault, invalidToken)
    if (point === 'before' && fault.mode !== 'slow') {
      journal.recordOutcome(entry, 'fault')
      deliver({ entry, reply, fault, response: instead })
      return
    }
    const response = work()
    entry.username = response.username ?? null
    entry.issued = response.issued ?? null
    journal.recordOutcome(entry, response.outcome)
    await gates.pass(endpoint, 'after', entry)
    if (fault.mode === 'slow' && point === 'after') await elapsed(fault.ms)
    deliver({ entry, reply, fault, response: instead ?? response })
  }

  /** Sends the response, or the part that the fault leaves of it. */
  function deliver({
    entry,
    reply,
    fault,
    response,
  }: {
    entry: JournalEntry
    reply: FastifyReply
    fault: TakenFault
    response: SandboxResponse | null
  }): void {
    const { socket } = reply.raw
    if (fault.mode === 'drop') {
      reply.hijack()
      socket?.resetAndDestroy()
    } else if (fault.mode === 'hang' || response === null) {
      reply.hijack()
    } else if (fault.mode === 'cut') {
      sendHalf(reply, response, () => socket?.destroy())
    } else if (fault.mode === 'stall') {
      sendHalf(reply, response, () => {})
    } else {
      send(reply, fault.mode === 'truncated' ? { ...response, body: firstHalf(response.body) } : response)
      journal.recordStatus(entry, response.status)
    }
  }

  function elapsed(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(done, ms)
      function done(): void {
        clearTimeout(timer)
        closing.removeEventListener('abort', done)
        resolve()
      }
      closing.addEventListener('abort', done)
    })
  }

  return { handle }
}

/** The point of the fault; null without a fault. Half a body needs the finished work. */
function pointOf(fault: TakenFault): 'before' | 'after' | null {
  if (fault.mode === 'ok') return null
  const needsBody = fault.mode === 'truncated' || fault.mode === 'cut' || fault.mode === 'stall'
  return needsBody ? 'after' : (fault.point ?? 'before')
}

/** The response that a fault sends instead of the right one; null if it sends none. */
function substitute(
  fault: TakenFault,
  invalidToken: (() => SandboxResponse) | undefined,
): SandboxResponse | null {
  switch (fault.mode) {
    case 'status':
      return withHeaders(
        textResponse(fault.status, fault.body ?? 'This response was asked for by a switch.\n', 'fault'),
        { 'content-type': 'text/plain; charset=utf-8', ...fault.headers },
      )
    case 'html':
      return withHeaders(
        textResponse(200, '<!doctype html><title>Maintenance</title><p>Back soon.</p>\n', 'fault'),
        { 'content-type': 'text/html; charset=utf-8' },
      )
    case 'refuse':
      return oauthError(fault.error ?? 'invalid_grant', 'Refused by a switch.')
    case 'invalid_client':
      return oauthError('invalid_client', 'Refused by a switch.', 401)
    case 'invalid-token':
      return invalidToken?.() ?? null
    default:
      return null
  }
}
