import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/authorization-server.ts'
import { createSlots } from './slots.ts'
import type { TokenSet } from './token-set.ts'

export interface Revoker {
  /** Revokes both tokens in the background (RFC 7009); a failure is logged and nothing more. */
  revoke(tokens: Pick<TokenSet, 'accessToken' | 'refreshToken'>): void
  settled(): Promise<void>
}

const AT_ONCE = 8
/** Revocation is a courtesy: an authorization server that is down must not fill our memory. */
const MAX_WAITING = 1_000

export function createRevoker({ server, log }: { server: AuthorizationServer; log: Logger }): Revoker {
  const slots = createSlots(AT_ONCE)
  const running = new Set<Promise<void>>()

  async function run({
    accessToken,
    refreshToken,
  }: Pick<TokenSet, 'accessToken' | 'refreshToken'>): Promise<void> {
    const release = await slots.take()
    try {
      const failure =
        (refreshToken === null ? null : await server.revoke(refreshToken, 'refresh_token')) ??
        (await server.revoke(accessToken, 'access_token'))
      if (failure !== null)
        log.warn({ event: 'revocation.failed', reason: failure }, 'tokens could not be revoked')
    } finally {
      release()
    }
  }

  return {
    revoke(tokens) {
      if (running.size >= MAX_WAITING)
        return log.warn({ event: 'revocation.skipped' }, 'too many revocations wait')
      const work = run(tokens)
      running.add(work)
      void work.finally(() => running.delete(work))
    },
    async settled() {
      await Promise.allSettled(running)
    },
  }
}
