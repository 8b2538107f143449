import { mediaKind } from './media-type.ts'
import type { AnswerHeaders } from './response-headers.ts'

/**
 * What may be done with an answer, from its head alone: relay it; relay it only if its body turns out
 * to be empty; or refuse it, for the reason given.
 */
export type Verdict = { kind: 'relay' } | { kind: 'relay_if_empty' } | { kind: 'refuse'; reason: string }

const RELAY: Verdict = { kind: 'relay' }
const RELAY_IF_EMPTY: Verdict = { kind: 'relay_if_empty' }

export interface Judged {
  status: number
  headers: AnswerHeaders
  method: string
  /** A script was asked for (JSONP), so it may come. */
  jsonp: boolean
}

export function judgeAnswer({ status, headers, method, jsonp }: Judged): Verdict {
  if (status === 304) return RELAY
  if (status >= 300 && status < 400) return refuse('redirect')
  const coding: string | string[] | undefined = headers['transfer-encoding']
  // The chunks are undone on the way, another transfer coding is not and would go on undeclared.
  if (coding !== undefined && String(coding).toLowerCase() !== 'chunked') return refuse('transfer coding')

  switch (mediaKind(headers['content-type'])) {
    case 'data':
      return RELAY
    case 'html':
      return refuse('text/html')
    case 'script':
      return jsonp ? RELAY : refuse('script')
    case 'untyped':
      if (hasNoBody(method, status) || headers['content-length'] === '0') return RELAY
      return headers['content-length'] === undefined ? RELAY_IF_EMPTY : refuse('body without a type')
  }
}

/** RFC 9112 section 6.3: these answers end with their head, whatever their fields say. */
export function hasNoBody(method: string, status: number): boolean {
  return method === 'HEAD' || status === 204 || status === 304
}

function refuse(reason: string): Verdict {
  return { kind: 'refuse', reason }
}
