import { Problem, problem } from '../errors.ts'

/** What Fastify's own errors are called here. */
const FASTIFY_CODES: Record<string, () => Problem> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () => problem('unsupported_media_type'),
  FST_ERR_CTP_BODY_TOO_LARGE: () => problem('payload_too_large'),
  FST_ERR_CTP_EMPTY_JSON_BODY: () => problem('invalid_request', 'The body is empty.'),
  FST_ERR_CTP_INVALID_JSON_BODY: () => problem('invalid_request', 'The body is not valid JSON.'),
  FST_ERR_BAD_URL: () => problem('invalid_request', 'The path holds a percent sign that encodes nothing.'),
  FST_ERR_MAX_PARAM_LENGTH: () => problem('uri_too_long'),
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
}

/** Any error as one of the table; `internal_error` for what nobody foresaw, with its cause for the log. */
export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error
  const { code = '', statusCode = 500, validation } = (error ?? {}) as FastifyLikeError
  const known = FASTIFY_CODES[code]
  if (known !== undefined) return known()
  if (validation?.[0] !== undefined) return problem('invalid_request', whatIsWrong(validation[0]))
  if (statusCode === 413) return problem('payload_too_large')
  if (statusCode >= 400 && statusCode < 500) return problem('invalid_request', 'The body is not valid JSON.')
  return problem('internal_error', { cause: error })
}

/** Names the member, as the contract of every 400 here. */
function whatIsWrong({ keyword, instancePath, message, params }: ValidationError): string {
  if (keyword === 'additionalProperties') {
    return `The member ${String(params.additionalProperty).slice(0, 64)} is not known.`
  }
  if (keyword === 'required') return `The member ${String(params.missingProperty)} is missing.`
  const member = instancePath.slice(1)
  if (member === '') return 'The body must be a JSON object.'
  if (keyword === 'const') return `The member ${member} must be ${JSON.stringify(params.allowedValue)}.`
  return `The member ${member} ${message ?? 'is not valid'}.`
}
