import type { Clock } from '../clock.ts'
import { problem, unavailable } from '../errors.ts'
import type { ApplicationAccess, ApplicationToken } from '../tokens/application-token.ts'
import type { Source } from './caller.ts'
import type { Operation } from './operation.ts'

/** The application itself, ready to call. */
export interface ApplicationCaller {
  readonly authorization: string
  readonly serial: number
  /** Of the access token, monotonic milliseconds. */
  readonly expiresAt: number
}

/** Calls without a session, by the application's own token (service document, section 5.4, client flow). */
export interface Application extends Source<ApplicationCaller> {
  mayPerform(operation: Operation): boolean
  /** Throws `authorization_server_unavailable`. */
  caller(): Promise<ApplicationCaller>
}

export interface ApplicationOptions {
  token: ApplicationToken
  /** `wac/fluxId` pairs, or all. */
  allowed: '*' | ReadonlySet<string>
  clock: Pick<Clock, 'monotonic'>
}

export function createApplication({ token, allowed, clock }: ApplicationOptions): Application {
  function toCaller(access: ApplicationAccess): ApplicationCaller {
    switch (access.kind) {
      case 'token':
        return {
          authorization: `Bearer ${access.token.reveal()}`,
          serial: access.serial,
          expiresAt: access.expiresAt,
        }
      case 'unavailable':
        throw unavailable('authorization_server_unavailable', access.retryAfterSeconds)
      case 'token_refused':
        throw problem('upstream_refused')
    }
  }

  return {
    mayPerform: ({ wac, fluxId }) => fluxId !== null && (allowed === '*' || allowed.has(`${wac}/${fluxId}`)),
    caller: async () => toCaller(await token.obtain()),
    renew: async (refused) => toCaller(await token.renew(refused.serial)),
    hasExpired: ({ expiresAt }) => clock.monotonic() >= expiresAt,
  }
}
