import type { Clock } from '../clock.ts'
import { GET_FLUX } from '../config/built-in.ts'
import { type CallerSource, waitProblem } from '../vault/vault.ts'
import type { ApplicationAccess, ApplicationToken } from './application-token.ts'
import type { OutgoingRequest } from './outgoing-request.ts'

/** The application as the caller: a request without a session uses its token. */
interface ApplicationCaller {
  readonly authorization: string
  readonly serial: number
  /** Of the access token, monotonic milliseconds. */
  readonly expiresAt: number
}

/** Requests without a session, by the application's own token (service document, section 5.4, client flow). */
export interface ApplicationCallers extends CallerSource<ApplicationCaller> {
  /** Whether `CLIENT_FLUX_ALLOWED` names the Flux, or the operation is declared so. */
  mayRead(outgoing: OutgoingRequest): boolean
  /** Rejects with `authorization_server_unavailable`, or `upstream_refused` for a token that was refused. */
  find(): Promise<ApplicationCaller>
}

interface ApplicationCallerOptions {
  token: ApplicationToken
  /** `wac/fluxId` pairs, or all. */
  allowed: '*' | ReadonlySet<string>
  clock: Pick<Clock, 'monotonic'>
}

export function createApplicationCallers({
  token,
  allowed,
  clock,
}: ApplicationCallerOptions): ApplicationCallers {
  return {
    mayRead: ({ operation, wac, targetId, application }) =>
      application || (operation === GET_FLUX.name && (allowed === '*' || allowed.has(`${wac}/${targetId}`))),
    find: async () => toCaller(await token.obtain()),
    forceRefresh: async (refused) => toCaller(await token.requestNewer(refused.serial)),
    hasExpired: ({ expiresAt }) => clock.monotonic() >= expiresAt,
    // It has no session that could have ended meanwhile.
    isProven: () => true,
    prove: async () => true,
    current: async (caller) => caller,
  }
}

function toCaller(access: ApplicationAccess): ApplicationCaller {
  if (access.kind === 'wait') throw waitProblem(access)
  const { token, serial, expiresAt } = access
  return { authorization: `Bearer ${token.reveal()}`, serial, expiresAt }
}
