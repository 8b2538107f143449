import net, { type Socket } from 'node:net'
import { parseConfig } from '../../src/config/config.ts'
import { type AuthorizationClient, createAuthorizationClient } from '../../src/oauth/client.ts'
import type { Teardown } from '../helpers/child.ts'
import { listenOnLoopback } from '../helpers/ports.ts'

/** A token endpoint on a bare socket; `answer` receives each whole request. */
export async function rawTokenEndpoint(
  t: Teardown,
  answer: (socket: Socket, request: string) => void,
): Promise<{ url: string; requests: string[] }> {
  const requests: string[] = []
  const server = net.createServer((socket) => {
    socket.on('error', () => {})
    let text = ''
    socket.on('data', (data) => {
      text += data.toString('latin1')
      const end = text.indexOf('\r\n\r\n')
      const length = Number(/^content-length: (\d+)$/im.exec(text)?.[1] ?? 0)
      if (end < 0 || text.length < end + 4 + length) return
      const request = text
      text = ''
      requests.push(request)
      answer(socket, request)
    })
  })
  return { url: `http://127.0.0.1:${await listenOnLoopback(t, server)}`, requests }
}

/** Bounds of a request that is sent within `sendWithinMs` and waits `answerWithinMs` for its response. */
export function bounds(sendWithinMs: number, answerWithinMs = sendWithinMs) {
  return { sendBefore: performance.now() + sendWithinMs, signal: AbortSignal.timeout(answerWithinMs) }
}

/** This server's client for the authorization server at `url`. */
export function clientOf(
  t: Teardown,
  url: string,
  env: Record<string, string> = {},
  monotonic = () => performance.now(),
): AuthorizationClient {
  const parsed = parseConfig({
    AUTH_URL: url,
    BASE_URL: url,
    PUBLIC_URL: 'http://localhost:1',
    CLIENT_ID: 'the-client',
    CLIENT_SECRET: 'a secret+/&=',
    SESSION_SECRET: 'the-first-secret-of-the-tests-of-32-characters',
    SESSION_STORE: 'memory',
    OAUTH_REVOCATION_URL: `${url}/oauth/revoke`,
    TOKEN_TIMEOUT_MS: '60000',
    ...env,
  })
  if (!parsed.ok) throw new Error(parsed.faults.join('\n'))
  const server = createAuthorizationClient({
    oauth: parsed.config.oauth,
    egress: parsed.config.egress,
    concurrency: 2,
    clock: { wall: () => 1_000_000, monotonic },
  })
  t.teardown(() => server.close())
  return server
}

/** A complete response with a length. */
export function http(
  status: string,
  body: string,
  headers: string[] = ['Content-Type: application/json'],
): string {
  return [`HTTP/1.1 ${status}`, ...headers, `Content-Length: ${Buffer.byteLength(body)}`, '', body].join(
    '\r\n',
  )
}
