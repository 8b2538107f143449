import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import { PATHS } from '../paths.ts'
import { Secret } from '../secret.ts'
import type { SessionStore } from '../store/store.ts'
import { grantProblem } from './grant-problem.ts'
import type { RateLimit } from './rate-limit.ts'
import type { FactsOptions } from './session-info.ts'
import { sessionFacts } from './session-info.ts'
import type { SignIn } from './sign-in.ts'

export interface PasswordOptions extends FactsOptions {
  publicUrl: string
  authorizationServer: Pick<AuthorizationServer, 'redeemPassword'>
  store: Pick<SessionStore, 'ping'>
  signIn: SignIn
  /** Throws where there are too many tries for one user name. */
  countUsername: RateLimit
  log: Logger
}

const TEXT = { type: 'string', minLength: 1, maxLength: 1024 }

export const PASSWORD_SCHEMA = {
  type: 'object',
  additionalProperties: false,
  required: ['username', 'password'],
  properties: { username: TEXT, password: { ...TEXT, writeOnly: true } },
} as const

/**
 * `POST /auth/password`: the credential flow (service document, section 5.4). Answers with the facts of the
 * new session. User name and password go to the token endpoint and nowhere else.
 */
export function createPassword(options: PasswordOptions) {
  const { publicUrl, authorizationServer, store, signIn, countUsername, log } = options

  return async function password(request: FastifyRequest, reply: FastifyReply): Promise<object> {
    const { username, password } = request.body as { username: string; password: string }
    countUsername(countedAs(username))
    // Tokens that nobody can keep are not asked for.
    await store.ping()
    const outcome = await authorizationServer.redeemPassword({
      redirectUri: publicUrl + PATHS.callback,
      username,
      password: new Secret(password),
    })
    if (outcome.kind !== 'granted') {
      const { kind } = outcome
      log.warn(
        { event: 'login.failed', reqId: request.id, outcome: kind, reason: outcome.reason },
        'a user name and password were not accepted',
      )
      throw grantProblem(outcome, () => problem('invalid_credentials'))
    }
    const session = await signIn.signIn(request, reply, { granted: outcome.tokens, flow: 'password' })
    return sessionFacts(session, options)
  }
}

/**
 * One name for all ways to write a user name that a directory might take for the same; hashed, so that what
 * is counted is short and holds nobody's name.
 */
function countedAs(username: string): string {
  const plain = username
    .normalize('NFKC')
    .toLowerCase()
    .replace(/[\p{C}\s]/gu, '')
  return createHash('sha256').update(plain).digest('base64url')
}
