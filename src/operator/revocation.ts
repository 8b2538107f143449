import type { AuthorizationServer } from '../oauth/client.ts'

export interface CountedRevocation {
  authorizationServer: Pick<AuthorizationServer, 'revoke'>
  /** To be told of each session whose tokens cannot even be read; counts as one. */
  unreadable(): void
  /** Tokens that were to be revoked, and of which it is not known that they are. */
  unrevoked(): number
}

/** An endpoint that fails so often without a break is not asked for each of a million sessions. */
const GIVES_UP_AFTER = 20

/** Counts what is not revoked, and gives up where the endpoint keeps failing. */
export function countRevocation(authorizationServer: Pick<AuthorizationServer, 'revoke'>): CountedRevocation {
  let unrevoked = 0
  let failures = 0

  return {
    unreadable() {
      unrevoked += 1
    },
    unrevoked: () => unrevoked,
    authorizationServer: {
      async revoke(token, hint) {
        // Until it is known to be: this process may end before the answer comes.
        unrevoked += 1
        if (failures >= GIVES_UP_AFTER) return null
        const failure = await authorizationServer.revoke(token, hint)
        if (failure === null) unrevoked -= 1
        failures = failure === null ? 0 : failures + 1
        return failure
      },
    },
  }
}
