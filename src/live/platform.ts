import { randomUUID } from 'node:crypto'
import { Agent, buildConnector, type Dispatcher } from 'undici'
import type { Config } from '../config/config.ts'
import { proxyFor } from '../config/egress.ts'
import type { Format } from '../config/operation.ts'
import { throughProxy } from '../egress.ts'
import { MEDIA_TYPE } from '../proxy/formats.ts'
import { fixedHeaders } from '../proxy/headers.ts'
import { bodyNamesInvalidToken, challengeNamesInvalidToken } from '../proxy/invalid-token.ts'
import type { Secret } from '../secret.ts'

const CONNECT_MS = 5_000
const MAX_BYTES = 1_048_576

interface Call {
  method: 'GET' | 'PUT'
  /** Below `BASE_URL`. */
  path: string
  /** Of a GET. Default JSON. */
  format?: Format
  body?: object
}

/** A response of the resource server, its body cut at a megabyte. */
export interface Answer {
  readonly status: number
  readonly type: string
  readonly etag: string | null
  readonly challenge: string | null
  readonly body: string
  /** Whether this server takes it for the response to an invalid token. */
  readonly isInvalidToken: boolean
}

/** The resource server as the proxy of this server calls it. */
export interface Platform {
  /** A failure to reach it is its reason. */
  call(token: Secret, call: Call): Promise<Answer | string>
  close(): Promise<void>
}

export function createPlatform({ baseUrl, egress, upstream }: Config): Platform {
  const base = new URL(baseUrl)
  const proxy = proxyFor(egress, baseUrl)
  const connector = buildConnector({ rejectUnauthorized: true, timeout: CONNECT_MS })
  const connect = proxy === null ? connector : throughProxy(proxy, connector, CONNECT_MS)
  const agent: Dispatcher = new Agent({ connect })
  const fixed = fixedHeaders(upstream.headers)

  return {
    async call(token, { method, path, format = 'JSON', body }) {
      const secret = token.reveal()
      const inQuery = upstream.tokenIn === 'query'
      const query = [
        ...(method === 'GET' ? [`format=${format}`] : []),
        ...(inQuery ? [`access_token=${encodeURIComponent(secret)}`] : []),
      ]
      try {
        const response = await agent.request({
          origin: base.origin,
          method,
          path: `${base.pathname.replace(/\/$/, '')}${path}${query.length === 0 ? '' : `?${query.join('&')}`}`,
          headers: [
            ...[...fixed, 'x-request-id', randomUUID(), 'accept', MEDIA_TYPE[format]],
            ...['content-type', MEDIA_TYPE[format], 'accept-encoding', 'identity'],
            ...(inQuery ? [] : ['authorization', `Bearer ${secret}`]),
          ],
          body: body === undefined ? null : JSON.stringify(body),
          signal: AbortSignal.timeout(upstream.timeoutMs),
        })
        const chunks: Buffer[] = []
        let size = 0
        for await (const chunk of response.body as AsyncIterable<Buffer>) {
          chunks.push(chunk)
          size += chunk.length
          if (size > MAX_BYTES) break
        }
        const field = (name: string): string | null => response.headers[name]?.toString() ?? null
        const status = response.statusCode
        const challenge = field('www-authenticate')
        const shapes = upstream.tokenShapes.filter((shape) => shape.status === status)
        const isNamed =
          challengeNamesInvalidToken(challenge ?? undefined) ||
          (await bodyNamesInvalidToken(chunks, field('content-encoding') ?? undefined, shapes))
        return {
          status,
          type: field('content-type') ?? '',
          etag: field('etag'),
          challenge,
          body: Buffer.concat(chunks).toString(),
          isInvalidToken: status === 401 || ((status === 400 || status === 403) && isNamed),
        }
      } catch (error) {
        const { code, name, message } = error as NodeJS.ErrnoException
        return code ?? (name === 'Error' ? message : name)
      }
    },
    close: () => agent.destroy(),
  }
}
