import type { FastifyReply } from 'fastify'

/** A complete HTTP response, before any fault is applied. */
export interface SandboxResponse {
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

/** The members of document section 2.3; the wire's own spelling. */
export interface TokenResponseBody {
  access_token: string
  token_type: 'bearer'
  expires_in?: unknown
  callback: string
  refresh_token?: string
  scope: string
  [member: string]: unknown
}

/** A response with a JSON body that no cache may store (RFC 6749 section 5.1). */
export function jsonResponse(status: number, value: unknown, outcome: string): SandboxResponse {
  const response = textResponse(status, JSON.stringify(value), outcome)
  return withHeaders(response, { 'content-type': 'application/json; charset=utf-8' })
}

/** A response with a body that no cache may store, without a content type. */
export function textResponse(status: number, text: string, outcome: string): SandboxResponse {
  return { status, headers: { 'cache-control': 'no-store' }, body: Buffer.from(text), outcome }
}

/** An error of the token endpoint (RFC 6749 section 5.2). */
export function oauthError(error: string, description: string, status = 400): SandboxResponse {
  const response = jsonResponse(status, { error, error_description: description }, error)
  return withHeaders(response, { pragma: 'no-cache' })
}

/** The response with these header fields added or replaced. */
export function withHeaders(response: SandboxResponse, headers: SandboxResponse['headers']): SandboxResponse {
  return { ...response, headers: { ...response.headers, ...headers } }
}

/** Sends the response byte for byte. The framework would add a content type. */
export function send(reply: FastifyReply, response: SandboxResponse): void {
  const bodiless = response.status === 204 || response.status === 304
  reply.hijack()
  reply.raw.writeHead(response.status, {
    ...response.headers,
    ...(bodiless ? {} : { 'content-length': String(response.body.length) }),
  })
  reply.raw.end(bodiless || reply.request.method === 'HEAD' ? undefined : response.body)
}

/** Announces the whole body, sends its first half and calls `sent` when the system has taken it. */
export function sendHalf(reply: FastifyReply, response: SandboxResponse, sent: () => void): void {
  const { status, headers, body } = response
  reply.hijack()
  reply.raw.writeHead(status, { ...headers, 'content-length': String(body.length) })
  reply.raw.write(firstHalf(body), () => sent())
}

/** What a broken connection or a faulty server leaves of a body. */
export function firstHalf(body: Buffer): Buffer {
  return body.subarray(0, Math.ceil(body.length / 2))
}
