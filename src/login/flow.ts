import type { FastifyInstance } from 'fastify'
import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { SessionFlow } from '../config/variables.ts'
import type { KnownPath } from '../http/hooks.ts'
import type { OpenApiFragment } from '../http/openapi.ts'
import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import type { SessionCookies } from '../session/cookies.ts'
import type { Sessions } from '../session/sessions.ts'
import type { ReliableStore } from '../store/reliable.ts'
import type { Revoker } from '../tokens/revoker.ts'
import type { SessionFacts } from './session-info.ts'
import type { SignIn } from './sign-in.ts'
import type { Transactions } from './transaction.ts'

/** What sign-in needs of the rest of the server. */
export interface LoginOptions {
  config: Config
  authorizationServer: AuthorizationServer
  store: ReliableStore
  sessions: Sessions
  revoke: Revoker['revoke']
  cookies: SessionCookies
  keyring: Keyring
  clock: Clock
  log: Logger
  onSignInFailed: (reason: SignInFailure) => void
}

/** Why a sign-in failed: label of `bff_sign_in_failures_total`. */
export type SignInFailure =
  | 'refused'
  | 'server_error'
  | 'login_failed'
  | 'unavailable'
  | 'store'
  | 'rate_limited'

/** Everything that the handlers of this folder use; each picks its part. */
export interface LoginContext extends LoginOptions {
  transactions: Transactions
  signIn: SignIn
  sessionFacts: SessionFacts
}

/** A flow besides `code`, served only where `OAUTH_FLOWS` names it. Each has one file, and a place in routes.ts. */
export interface LoginFlow {
  name: SessionFlow
  /** Its paths with all methods that they take, those of the code flow included. */
  knownPaths(redirect: Config['oauth']['redirect']): readonly KnownPath[]
  openApi: OpenApiFragment
  /** Adds its routes to a scope that has browser sessions and JSON bodies. */
  addRoutes(scope: FastifyInstance, context: LoginContext): void
}

/** The longest body of a flow: a few members, of which a token may be long. */
export const BODY_LIMIT_BYTES = 16_384
