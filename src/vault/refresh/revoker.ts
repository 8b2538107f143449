import type { Logger } from '../../log.ts'
import type { AuthorizationServer } from '../../oauth/client.ts'
import { withTimeout } from '../../timeout.ts'
import type { TokenSet } from '../sealed-tokens.ts'

type Revocable = Pick<TokenSet, 'accessToken' | 'refreshToken'>

export interface Revoker {
  /** Revokes both tokens in the background (RFC 7009); a failure is only logged. */
  revoke(tokens: Revocable): void
  /** Resolves when a revocation slot is free. Used to pace bulk revocation. */
  freeSlot(): Promise<void>
  /** Resolves when all revocations are done, or after `withinMs`; none is begun after that. */
  stop(withinMs: number): Promise<void>
}

const MAX_RUNNING = 8
/** Revocation is optional: an authorization server that is down must not fill our memory. */
const MAX_WAITING = 1_000

interface RevokerOptions {
  authorizationServer: Pick<AuthorizationServer, 'revoke'>
  log: Logger
}

export function createRevoker({ authorizationServer, log }: RevokerOptions): Revoker {
  const waiting: Revocable[] = []
  const running = new Set<Promise<void>>()

  function startNext(): void {
    const tokens = running.size < MAX_RUNNING ? waiting.shift() : undefined
    if (tokens === undefined) return
    const work = run(tokens).finally(() => {
      running.delete(work)
      startNext()
    })
    running.add(work)
  }

  async function idle(): Promise<void> {
    while (running.size > 0) await Promise.allSettled(running)
  }

  async function run({ accessToken, refreshToken }: Revocable): Promise<void> {
    const failures = [
      refreshToken === null ? null : await authorizationServer.revoke(refreshToken, 'refresh_token'),
      await authorizationServer.revoke(accessToken, 'access_token'),
    ]
    const reason = failures.find((failure) => failure !== null)
    if (reason !== undefined)
      log.warn(
        { event: 'revocation.failed', reason },
        'tokens could not be revoked: they stay valid until they expire',
      )
  }

  return {
    revoke(tokens) {
      if (waiting.length >= MAX_WAITING)
        return log.warn(
          { event: 'revocation.skipped' },
          'too many revocations wait: these tokens stay valid until they expire',
        )
      waiting.push(tokens)
      startNext()
    },
    async freeSlot() {
      while (running.size >= MAX_RUNNING) await Promise.race(running)
    },
    async stop(withinMs) {
      await withTimeout(idle(), withinMs)
      waiting.length = 0
    },
  }
}
