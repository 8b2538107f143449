import type { Config } from '../config/config.ts'
import { pathOfOperation } from '../config/operation.ts'
import type { Identity } from '../config/operations-file.ts'
import { jsonPointer, jsonScalarAt } from '../json.ts'
import type { Identify } from '../vault/vault.ts'
import { createOwnCalls } from './own-calls.ts'

type Identified = Awaited<ReturnType<Identify>>

const TIMEOUT_MS = 3_000
const MAX_LENGTH = 256
const LIMITS = { connections: 32, connectMs: TIMEOUT_MS, timeoutMs: TIMEOUT_MS, maxBytes: 64 * 1024 }

/** `identity` of `OPERATIONS_FILE`: one request, which is not repeated. */
export function createIdentify(
  identity: Identity,
  config: Pick<Config, 'baseUrl' | 'egress' | 'upstream' | 'wac'>,
): { identify: Identify; close(): Promise<void> } {
  const calls = createOwnCalls(config, LIMITS)
  const { formatInQuery } = identity.operation
  const path = pathOfOperation(identity.operation).replace('{wac}', String(config.wac.default))

  const request = (requestId: string) => ({ method: 'GET', path, formatInQuery, requestId }) as const

  return {
    async identify(accessToken, requestId) {
      try {
        const { status, bytes, isWhole } = await calls.call(accessToken, request(requestId))
        if (status !== 200) return unknown(`status ${status}`)
        return isWhole ? read(String(bytes), identity) : unknown('more than 64 KiB')
      } catch (error) {
        const { name, message } = error as Error
        return unknown(name === 'TimeoutError' ? 'no answer in 3 seconds' : message)
      }
    },
    close: calls.close,
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
