import type { FastifyReply, FastifyRequest } from 'fastify'
import { either, Problem, problem } from '../errors.ts'

/** Sends a problem as a page for a person. */
export type ProblemPage = (problem: Problem) => unknown

declare module 'fastify' {
  interface FastifyInstance {
    /** How to show a problem with this request as a page; null if it is sent as JSON. */
    problemPage: (request: FastifyRequest, reply: FastifyReply) => ProblemPage | null
  }
  interface FastifyRequest {
    /** The problem that was sent, for the log and the metrics. */
    sentProblem: Problem | null
  }
}

/** Sends a problem as `application/problem+json`, or as a page if the browser shows the response. */
export function sendProblem(request: FastifyRequest, reply: FastifyReply, toSend: Problem): unknown {
  request.sentProblem = toSend
  for (const [name, value] of Object.entries(toSend.headers)) reply.header(name, value)
  const page = request.server.problemPage(request, reply)
  if (page !== null) return page(toSend)
  return reply.code(toSend.status).type('application/problem+json').send(toSend.body(request.id))
}

/** How the detail of a problem names a parameter: by a name that is safe to show, else by its position from 0. */
export function parameterAt(position: number, name: string): string {
  return /^[A-Za-z0-9_.$[\]-]{1,64}$/.test(name)
    ? `The parameter ${name}`
    : `Parameter ${position + 1} of the query`
}

/** The detail of a 415 where JSON is expected. */
export const NO_JSON = 'Send JSON in UTF-8, with Content-Type: application/json and no content coding.'

/** Fastify's own errors as problems. */
const FASTIFY_CODES: Record<string, () => Problem> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () => problem('unsupported_media_type', NO_JSON),
  FST_ERR_CTP_BODY_TOO_LARGE: () => problem('payload_too_large'),
  FST_ERR_CTP_EMPTY_JSON_BODY: () => problem('invalid_request', 'The body is empty.'),
  FST_ERR_CTP_INVALID_JSON_BODY: () => problem('invalid_request', 'The body is not valid JSON.'),
  FST_ERR_BAD_URL: () => problem('invalid_request', 'The path holds a percent sign that encodes nothing.'),
}

interface FastifyLikeError {
  code?: string
  statusCode?: number
  validation?: ValidationError[]
}

interface ValidationError {
  keyword: string
  instancePath: string
  message?: string
  params: Record<string, unknown>
  parentSchema?: { type?: string | string[]; maxLength?: number }
}

/** Any error as a problem of the table. An unexpected one is `internal_error`, with its cause for the log. */
export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error
  const { code = '', statusCode = 500, validation } = (error ?? {}) as FastifyLikeError
  const known = FASTIFY_CODES[code]
  if (known !== undefined) return known()
  if (validation?.[0] !== undefined) return problem('invalid_request', validationDetail(validation[0]))
  if (statusCode === 413) return problem('payload_too_large')
  if (statusCode >= 400 && statusCode < 500) return problem('invalid_request', 'The body is not valid JSON.')
  return problem('internal_error', { cause: error })
}

/** Names the member, as every 400 does. */
function validationDetail({ keyword, instancePath, message, params, parentSchema }: ValidationError): string {
  if (keyword === 'additionalProperties') {
    return `The member ${String(params.additionalProperty).slice(0, 64)} is not known.`
  }
  if (keyword === 'required') return `The member ${String(params.missingProperty)} is missing.`
  const member = instancePath.slice(1, 129)
  if (member === '' && keyword === 'type') return `The body must be a JSON ${String(params.type)}.`
  if (member === '') return `The body ${message ?? 'is not valid'}.`
  if (keyword === 'type' || (keyword === 'maxLength' && params.limit === 0)) {
    const { type = params.type, maxLength } = parentSchema ?? {}
    const kinds = String(type)
      .split(',')
      .map((kind) => (kind === 'string' && maxLength === 0 ? 'empty' : kind))
    return `The member ${member} must be ${either(kinds)}.`
  }
  if (keyword === 'const') return `The member ${member} must be ${JSON.stringify(params.allowedValue)}.`
  return `The member ${member} ${message ?? 'is not valid'}.`
}
