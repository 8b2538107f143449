import type { Outcome } from './call.ts'
import type { AnswerHeaders } from './response-headers.ts'

/** What a failure before the head of the answer comes to. */
export function failureOutcome(error: Error): Outcome {
  const code = codeOf(error)
  switch (code) {
    case 'UND_ERR_CONNECT_TIMEOUT':
    case 'UND_ERR_HEADERS_TIMEOUT':
    case 'UND_ERR_BODY_TIMEOUT':
      return { kind: 'timeout' }
    case 'UND_ERR_HEADERS_OVERFLOW':
    case 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH':
      return { kind: 'unusable', reason: code }
    default:
      // undici leaves this one's code empty.
      if (error.name === 'HTTPParserError') return { kind: 'unusable', reason: 'not HTTP/1.1' }
      return { kind: 'unavailable', cause: error }
  }
}

/** What an answer comes to that may not be relayed. `reason` is for the log. */
export function refusalOutcome(status: number, headers: AnswerHeaders, reason: string): Outcome {
  if (status < 400 || status > 599) return { kind: 'unusable', reason }
  const retryAfter: string | string[] | undefined = headers['retry-after']
  return { kind: 'upstream_error', status, retryAfter: typeof retryAfter === 'string' ? retryAfter : null }
}

/** Whether the connection went away, rather than being slow or speaking something else. */
export function isLostConnection(error: Error): boolean {
  const code = codeOf(error)
  return code === 'UND_ERR_SOCKET' || code === 'ECONNRESET' || code === 'EPIPE'
}

function codeOf(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : ''
}
