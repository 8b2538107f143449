import { buildConnector, Pool } from 'undici'
import type { Config } from '../config/config.ts'
import { proxyFor } from '../config/egress.ts'
import { pathOfOperation } from '../config/operation.ts'
import type { Identity } from '../config/operations-file.ts'
import { throughProxy } from '../egress.ts'
import { jsonPointer, jsonScalarAt } from '../json.ts'
import type { Secret } from '../secret.ts'
import type { Identify } from '../session/user.ts'
import { fixedHeaders } from './headers.ts'

type Identified = Awaited<ReturnType<Identify>>

const TIMEOUT_MS = 3_000
const MAX_BYTES = 64 * 1024
const MAX_LENGTH = 256
const CONNECTIONS = 32

/** `identity` of `OPERATIONS_FILE`: one request, which is not repeated, over connections of its own. */
export function createIdentify(
  identity: Identity,
  { baseUrl, egress, upstream, wac }: Pick<Config, 'baseUrl' | 'egress' | 'upstream' | 'wac'>,
): { identify: Identify; close(): Promise<void> } {
  const base = new URL(baseUrl)
  const proxy = proxyFor(egress, baseUrl)
  const connect = buildConnector({ timeout: TIMEOUT_MS, rejectUnauthorized: true })
  const pool = new Pool(base.origin, {
    connections: CONNECTIONS,
    connect: proxy === null ? connect : throughProxy(proxy, connect, TIMEOUT_MS),
  })
  const path = pathOfOperation(identity.operation).replace('{wac}', String(wac.default))
  const target = `${base.pathname.replace(/\/$/, '')}${path}?format=JSON`
  const fixed = fixedHeaders(upstream.headers)

  async function ask(accessToken: Secret, requestId: string): Promise<string> {
    const token = accessToken.reveal()
    const inQuery = upstream.tokenIn === 'query'
    const response = await pool.request({
      method: 'GET',
      path: inQuery ? `${target}&access_token=${encodeURIComponent(token)}` : target,
      headers: [
        ...[...fixed, 'x-request-id', requestId, 'accept', 'application/json', 'accept-encoding', 'identity'],
        ...['content-type', 'application/json'],
        ...(inQuery ? [] : ['authorization', `Bearer ${token}`]),
      ],
      signal: AbortSignal.timeout(TIMEOUT_MS),
    })
    if (response.statusCode !== 200) {
      await response.body.dump().catch(() => {})
      throw new Error(`status ${response.statusCode}`)
    }
    const parts: Buffer[] = []
    let size = 0
    for await (const part of response.body as AsyncIterable<Buffer>) {
      parts.push(part)
      size += part.length
      if (size > MAX_BYTES) throw new Error('more than 64 KiB')
    }
    return Buffer.concat(parts).toString()
  }

  return {
    async identify(accessToken, requestId) {
      let text: string
      try {
        text = await ask(accessToken, requestId)
      } catch (error) {
        const { name, message } = error as Error
        return unknown(name === 'TimeoutError' ? 'no answer in 3 seconds' : message)
      }
      return read(text, identity)
    },
    close: () => pool.destroy(),
  }
}

function read(text: string, identity: Identity): Identified {
  let id: ReturnType<typeof jsonScalarAt>
  let name: typeof id
  try {
    id = jsonScalarAt(text, identity.id)
    name = identity.name === null ? null : jsonScalarAt(text, identity.name)
  } catch {
    return unknown('the answer is no JSON')
  }
  if (id === null || id.value === '' || !isShown(id.value))
    return unknown(`${jsonPointer(...identity.id)} is no text of 1 to 256 characters and no integer`)
  if (name?.kind !== 'text') return { kind: 'user', user: { id: id.value, name: null } }
  if (!isShown(name.value))
    return unknown(`${jsonPointer(...identity.name!)} is no text of at most 256 characters`)
  return { kind: 'user', user: { id: id.value, name: name.value } }
}

function unknown(reason: string): Identified {
  return { kind: 'unknown', reason }
}

/** At most 256 characters, none of them a control, format or surrogate character. */
function isShown(text: string): boolean {
  return [...text].length <= MAX_LENGTH && !/[\p{Cc}\p{Cf}\p{Cs}]/u.test(text)
}
