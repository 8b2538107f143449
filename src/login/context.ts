import type { FastifyContextConfig } from 'fastify'
import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { SessionFlow } from '../config/variables.ts'
import type { SessionCookies } from '../http/cookies.ts'
import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import type { GrantedTokens } from '../oauth/token-response.ts'
import type { Binding, DeviceRefresh } from '../vault/binding.ts'
import type { Sessions } from '../vault/lifecycle.ts'
import type { Revoker } from '../vault/refresh/revoker.ts'
import type { OutboxStore } from '../vault/store/outbox.ts'
import type { Identify } from '../vault/user.ts'
import type { LoginCookies } from './login-cookies.ts'
import type { RateLimit } from './rate-limit.ts'
import type { RequireDevice, SessionFacts } from './session-info.ts'
import type { Redeem, SignIn, SignInFailure } from './sign-in.ts'

/** What sign-in needs of the rest of the server. */
export interface LoginOptions {
  config: Config
  authorizationServer: AuthorizationServer
  store: OutboxStore
  sessions: Sessions
  revoke: Revoker['revoke']
  cookies: SessionCookies
  keyring: Keyring
  clock: Clock
  log: Logger
  /** null: the platform is not asked who has signed in. */
  identify: Identify | null
  onSignedIn: (flow: SessionFlow, granted: GrantedTokens) => void
  onSignInFailed: (reason: SignInFailure) => void
  /** null: sessions are not bound to devices. */
  binding: Binding | null
  onBound: () => void
  onDeviceRefresh: (outcome: DeviceRefresh) => void
}

/** Everything that the handlers of this folder use; each picks its part. */
export interface LoginContext extends LoginOptions {
  loginCookies: LoginCookies
  /** How routes that browsers navigate to show a problem. */
  problemPage: NonNullable<FastifyContextConfig['page']>
  /** Counts a callback that would begin a session, by client address. */
  countCallback: RateLimit
  redeem: Redeem
  signIn: SignIn
  sessionFacts: SessionFacts
  requireDevice: RequireDevice
}
