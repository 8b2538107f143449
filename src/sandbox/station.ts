import { setMaxListeners } from 'node:events'
import type { FastifyReply } from 'fastify'
import { type Answer, firstHalf, oauthError, send, sendHalf, textAnswer } from './answer.ts'
import type { FaultSwitches, Station, TakenFault } from './faults.ts'
import type { Gates } from './gates.ts'
import type { Journal, JournalEntry } from './journal.ts'

export interface Passage {
  station: Station
  entry: JournalEntry
  reply: FastifyReply
  /** Does what was asked and builds the right answer. Runs in one go, so requests never mix. */
  work: () => Answer
  /** The response to an invalid access token, for the fault `invalid-token`. */
  invalidToken?: () => Answer
}

/** Processes each request in this order: gate, fault, work, gate, fault, response. */
export function createStation({
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

  async function pass({ station, entry, reply, work, invalidToken }: Passage): Promise<void> {
    await gates.pass(station, 'before', entry)
    const fault = faults.take(station, entry.kind)
    if (fault.mode !== 'ok') journal.met(entry, fault.mode)
    const point = pointOf(fault)
    if (fault.mode === 'slow' && point === 'before') await elapsed(fault.ms)

    const instead = substitute(fault, invalidToken)
    if (point === 'before' && fault.mode !== 'slow') {
      journal.decided(entry, 'fault')
      deliver(entry, reply, fault, instead)
      return
    }
    const answer = work()
    entry.username = answer.username ?? null
    entry.issued = answer.issued ?? null
    journal.decided(entry, answer.outcome)
    await gates.pass(station, 'after', entry)
    if (fault.mode === 'slow' && point === 'after') await elapsed(fault.ms)
    deliver(entry, reply, fault, instead ?? answer)
  }

  /** Sends the response, or the part that the fault leaves of it. */
  function deliver(entry: JournalEntry, reply: FastifyReply, fault: TakenFault, answer: Answer | null): void {
    const { socket } = reply.raw
    if (fault.mode === 'drop') {
      reply.hijack()
      socket?.resetAndDestroy()
    } else if (fault.mode === 'hang' || answer === null) {
      reply.hijack()
    } else if (fault.mode === 'cut') {
      sendHalf(reply, answer, () => socket?.destroy())
    } else if (fault.mode === 'stall') {
      sendHalf(reply, answer, () => {})
    } else {
      const sent = fault.mode === 'truncated' ? { ...answer, body: firstHalf(answer) } : answer
      send(reply, sent)
      journal.answered(entry, sent.status)
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

  return { pass }
}

/** The point of the fault; null without a fault. Half a body needs the finished work. */
function pointOf(fault: TakenFault): 'before' | 'after' | null {
  if (fault.mode === 'ok') return null
  const needsBody = fault.mode === 'truncated' || fault.mode === 'cut' || fault.mode === 'stall'
  return needsBody ? 'after' : (fault.point ?? 'before')
}

/** The response that a fault sends instead of the right one; null if it sends none. */
function substitute(fault: TakenFault, invalidToken: (() => Answer) | undefined): Answer | null {
  switch (fault.mode) {
    case 'status':
      return textAnswer(fault.status, fault.body ?? 'This answer was asked for by a switch.\n', 'fault', {
        'content-type': 'text/plain; charset=utf-8',
        ...fault.headers,
      })
    case 'html':
      return textAnswer(200, '<!doctype html><title>Maintenance</title><p>Back soon.</p>\n', 'fault', {
        'content-type': 'text/html; charset=utf-8',
      })
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
