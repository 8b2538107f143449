import { randomUUID } from 'node:crypto'
import type { Config } from '../../src/config/config.ts'
import { bodyNamesInvalidToken, challengeNamesInvalidToken } from '../../src/proxy/invalid-token.ts'
import { createOwnCalls } from '../../src/proxy/own-calls.ts'
import { ruleFor } from '../../src/proxy/response-rules.ts'
import type { Secret } from '../../src/secret.ts'
import { type Operator, Stopped } from './operator.ts'

type OwnCalls = ReturnType<typeof createOwnCalls>

/** A response of the resource server, its body cut at a megabyte. */
export interface Answer {
  readonly status: number
  readonly type: string
  readonly etag: string | null
  readonly encoding: string | null
  /** Length of the body as it came. */
  readonly bytes: number
  readonly challenge: string | null
  readonly body: string
  /** Whether this server takes it for the response to an invalid token. */
  readonly isInvalidToken: boolean
}

/** Why pages get 502 for this response; null: they get it. */
export function whyUnusable({ status, type, bytes }: Answer): string | null {
  const headers = { ...(type === '' ? {} : { 'content-type': type }), 'content-length': String(bytes) }
  const rule = ruleFor(status, headers, { method: 'GET', jsonp: false })
  if (typeof rule === 'string') return null
  return rule.kind === 'unusable' ? rule.reason : rule.kind
}

/** The resource server as the proxy of this server calls it. */
export interface Platform {
  /** A failure to reach it is its reason. */
  call(token: Secret, call: Omit<Parameters<OwnCalls['call']>[1], 'requestId'>): Promise<Answer | string>
  close(): Promise<void>
}

export function createPlatform(config: Config, { unlessStopped }: Pick<Operator, 'unlessStopped'>): Platform {
  const { tokenShapes, timeoutMs } = config.upstream
  const calls = createOwnCalls(config, { connections: 1, connectMs: 5_000, timeoutMs, maxBytes: 1_048_576 })

  return {
    async call(token, call) {
      try {
        const work = calls.call(token, { ...call, requestId: randomUUID() })
        // An update that was sent may have happened, so its answer is awaited and it is put back.
        const { status, field, bytes } = await (call.method === 'GET' ? unlessStopped(work) : work)
        const challenge = field('www-authenticate')
        const shapes = tokenShapes.filter((shape) => shape.status === status)
        const isNamed =
          challengeNamesInvalidToken(challenge ?? undefined) ||
          (await bodyNamesInvalidToken([bytes], field('content-encoding') ?? undefined, {
            shapes,
            isWhole: true,
          }))
        return {
          status,
          type: field('content-type') ?? '',
          etag: field('etag'),
          encoding: field('content-encoding'),
          bytes: bytes.length,
          challenge,
          body: String(bytes),
          isInvalidToken: status === 401 || ((status === 400 || status === 403) && isNamed),
        }
      } catch (error) {
        if (error instanceof Stopped) throw error
        // The code of a DOMException, for example of a timeout, is a number.
        const { code, name, message } = error as NodeJS.ErrnoException
        return typeof code === 'string' ? code : name === 'Error' ? message : name
      }
    },
    close: calls.close,
  }
}
