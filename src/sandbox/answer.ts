import type { FastifyReply } from 'fastify'

/** A complete HTTP response, before any fault is applied. */
export interface Answer {
  status: number
  headers: Record<string, string | string[]>
  body: Buffer
  /** For the journal: `granted`, `answered`, or the error code. */
  outcome: string
  /** For the journal: the user of the request. */
  username?: string | null
  /** For the journal: the number of the access token in the body. */
  issued?: number | null
}

/** A response with a JSON body that no cache may store (RFC 6749 section 5.1). */
export function jsonAnswer(
  status: number,
  value: unknown,
  outcome: string,
  headers: Record<string, string> = {},
): Answer {
  return textAnswer(status, JSON.stringify(value), outcome, {
    'content-type': 'application/json; charset=utf-8',
    ...headers,
  })
}

export function textAnswer(
  status: number,
  text: string,
  outcome: string,
  headers: Record<string, string>,
): Answer {
  return { status, headers: { 'cache-control': 'no-store', ...headers }, body: Buffer.from(text), outcome }
}

/** An error of the token endpoint (RFC 6749 section 5.2). */
export function oauthError(
  error: string,
  description: string,
  status = 400,
  headers: Record<string, string> = {},
): Answer {
  return jsonAnswer(status, { error, error_description: description }, error, {
    pragma: 'no-cache',
    ...headers,
  })
}

/** Sends the response byte for byte. The framework would add a content type. */
export function send(reply: FastifyReply, answer: Answer): void {
  const bodiless = answer.status === 204 || answer.status === 304
  reply.hijack()
  reply.raw.writeHead(answer.status, {
    ...answer.headers,
    ...(bodiless ? {} : { 'content-length': String(answer.body.length) }),
  })
  reply.raw.end(bodiless || reply.request.method === 'HEAD' ? undefined : answer.body)
}

/** Announces the whole body, sends its first half and calls `sent` when the system has taken it. */
export function sendHalf(reply: FastifyReply, answer: Answer, sent: () => void): void {
  reply.hijack()
  reply.raw.writeHead(answer.status, { ...answer.headers, 'content-length': String(answer.body.length) })
  reply.raw.write(firstHalf(answer), () => sent())
}

export function firstHalf(answer: Answer): Buffer {
  return answer.body.subarray(0, Math.ceil(answer.body.length / 2))
}
