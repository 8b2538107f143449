import { Pool } from 'undici'
import type { Config } from '../config/config.ts'
import type { Format } from '../config/operation.ts'
import { connectorTo, readStart } from '../egress.ts'
import { prefixOf } from '../paths.ts'
import type { Secret } from '../secret.ts'
import { timeoutSignal } from '../timeout.ts'
import { MEDIA_TYPE } from './formats.ts'
import { fixedHeaders } from './headers.ts'

/** A call of the resource server that this server makes for itself. */
interface OwnCall {
  readonly method: 'GET' | 'PUT'
  /** Below `BASE_URL`. */
  readonly path: string
  /** As it is sent, without `?`. */
  readonly query?: string
  /** Of the response; null leaves it to the resource server. Default JSON. */
  readonly format?: Format | null
  /** Whether the query names it too: that of a GET, and any that has the token. Default true. */
  readonly formatInQuery?: boolean
  readonly body?: object
  /** Header fields besides those of every call, for example `accept-encoding`, which is else `identity`. */
  readonly fields?: Readonly<Record<string, string>>
  readonly requestId: string
}

interface Limits {
  readonly connections: number
  readonly connectMs: number
  readonly timeoutMs: number
  /** Of a body; what is longer is cut off. */
  readonly maxBytes: number
}

/** Calls that are not forwarded: they are not repeated, and each has a connection of its own. */
export function createOwnCalls(
  { baseUrl, egress, upstream }: Pick<Config, 'baseUrl' | 'egress' | 'upstream'>,
  { connections, connectMs, timeoutMs, maxBytes }: Limits,
) {
  const base = new URL(baseUrl)
  const pool = new Pool(base.origin, {
    connections,
    connect: connectorTo(baseUrl, egress, connectMs),
    // 0 closes a connection after its response: its server may close one that is kept just as it is used.
    pipelining: 0,
  })
  const prefix = prefixOf(base)
  const fixed = fixedHeaders(upstream.headers)

  return {
    /** Rejects with undici's error, a `TimeoutError`, or the status of a refusal whose body is not whole. */
    async call(token: Secret, call: OwnCall) {
      const { method, path, format = 'JSON', formatInQuery = true, body, fields = {}, requestId } = call
      const secret = token.reveal()
      const inQuery = upstream.tokenIn === 'query'
      const namesFormat = formatInQuery && format !== null
      const query = [
        ...((method === 'GET' || inQuery) && namesFormat ? [`format=${format}`] : []),
        ...(call.query ? [call.query] : []),
        ...(inQuery ? [`access_token=${encodeURIComponent(secret)}`] : []),
      ].join('&')
      const response = await pool.request({
        method,
        path: `${prefix}${path}${query === '' ? '' : `?${query}`}`,
        headers: [
          ...[...fixed, 'x-request-id', requestId, 'accept', format === null ? '*/*' : MEDIA_TYPE[format]],
          ...(namesFormat || body !== undefined ? ['content-type', MEDIA_TYPE[format ?? 'JSON']] : []),
          ...Object.entries({ 'accept-encoding': 'identity', ...fields }).flat(),
          ...(inQuery ? [] : ['authorization', `Bearer ${secret}`]),
        ],
        body: body === undefined ? null : JSON.stringify(body),
        signal: timeoutSignal(timeoutMs),
      })
      const { statusCode: status, headers } = response
      const field = (name: string): string | null => headers[name]?.toString() ?? null
      const start = await readStart(response.body, maxBytes).catch((cause: unknown) => {
        // The status of a refusal says more than why its body is not whole.
        throw status < 400 ? cause : new Error(`status ${status}, without its whole body`, { cause })
      })
      return { status, field, ...start }
    },
    close: () => pool.destroy(),
  }
}
