import type { FastifyContextConfig } from 'fastify'
import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { SessionCookies } from '../http/cookies.ts'
import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationClient } from '../oauth/client.ts'
import type { Identify, Vault } from '../vault/vault.ts'
import type { LoginCookies } from './login-cookies.ts'
import type { RateLimit } from './rate-limit.ts'
import type { SessionFacts } from './session-info.ts'
import type { LoginEvents, Redeem, SignIn } from './sign-in.ts'

/** What sign-in needs of the rest of the server. */
export interface LoginOptions {
  config: Config
  authorizationClient: AuthorizationClient
  vault: Vault
  cookies: SessionCookies
  keyring: Keyring
  clock: Clock
  log: Logger
  /** null: the platform is not asked who has signed in. */
  identify: Identify | null
  observe: LoginEvents
}

/** What the handlers of this folder share; each picks its part. */
export interface LoginContext {
  services: LoginOptions
  loginCookies: LoginCookies
  /** How routes that browsers navigate to show a problem. */
  problemPage: NonNullable<FastifyContextConfig['page']>
  /** Counts a callback that would begin a session, by client address. */
  countCallback: RateLimit
  redeem: Redeem
  signIn: SignIn
  sessionFacts: SessionFacts
}
