import type { FastifyReply, FastifyRequest } from 'fastify'
import { type Problem, problem } from '../errors.ts'
import { dropBody } from '../http/body.ts'

/** Bodies up to 10 MiB are permitted; eight of them may be under way. */
const MOST_BYTES = 80 * 1024 * 1024

/**
 * Counts the body of each request, by what its headers announce, until its response is over: a body that still comes takes
 * memory too, whoever sends it. The result throws for one too many; to call before the body is read. `mostOfOne`: bytes of a
 * body that announces no length.
 */
export function createBodyBudget(
  mostOfOne: number,
  most = MOST_BYTES,
): (request: FastifyRequest, reply: FastifyReply) => void {
  let bytes = 0
  return function count(request, reply) {
    const { 'content-length': announced = mostOfOne } = request.headers
    // A longer one is refused before it is read.
    const length = Math.min(Number(announced), mostOfOne)
    if (bytes + length > most) {
      dropBody(request, reply)
      throw overloaded()
    }
    bytes += length
    reply.raw.once('close', () => {
      bytes -= length
    })
  }
}

/** The problem of an update for which there is no memory. */
export function overloaded(): Problem {
  const detail = 'Too many updates wait for the platform. This one has not been sent: try again.'
  return problem('upstream_unavailable', { status: 503, detail, headers: { 'retry-after': '5' } })
}
