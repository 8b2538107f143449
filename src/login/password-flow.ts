import type { FastifyReply, FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import { requireJson } from '../http/body.ts'
import { networkOf } from '../http/network-of.ts'
import { jsonResponse, problemOrPage, requestHeaders } from '../http/openapi.ts'
import { PATHS } from '../paths.ts'
import { Secret } from '../secret.ts'
import type { LoginContext } from './context.ts'
import { BODY_LIMIT_BYTES, type OptionalFlow } from './optional-flow.ts'
import { createRateLimit } from './rate-limit.ts'
import { requireTokens } from './sign-in.ts'

/** A stranger's tries from elsewhere count to the wider limit of a name, so that they keep no user out. */
const TRIES_PER_MINUTE = { address: 30, usernameAndAddress: 5, username: 50 }

const TEXT = { type: 'string', minLength: 1, maxLength: 1024 } as const

/** Body of `POST /auth/password`. */
const PASSWORD_SCHEMA = {
  $id: 'PasswordSignIn',
  type: 'object',
  additionalProperties: false,
  required: ['username', 'password'],
  properties: { username: TEXT, password: { ...TEXT, writeOnly: true } },
  examples: [{ username: 'alice', password: 'wonderland' }],
} as const

type PasswordBody = Record<keyof (typeof PASSWORD_SCHEMA)['properties'], string>

const SCHEMA = {
  operationId: 'password',
  tags: ['session'],
  summary: 'Sign in by user name and password',
  security: [],
  headers: requestHeaders(),
  body: { $ref: 'PasswordSignIn#' },
  response: {
    200: jsonResponse('Signed in.', 'SignedInSession'),
    400: problemOrPage('invalid_request'),
    401: problemOrPage('invalid_credentials'),
    403: problemOrPage('cross_origin'),
    413: problemOrPage('payload_too_large'),
    415: problemOrPage('unsupported_media_type'),
    429: problemOrPage('rate_limited'),
    502: problemOrPage('upstream_unavailable'),
    503: problemOrPage('store_unavailable, authorization_server_unavailable'),
    504: problemOrPage('upstream_timeout'),
  },
}

/** The credential flow (service document, section 5.4), `grant_type=password` of RFC 6749 section 4.3. */
export const PASSWORD_FLOW: OptionalFlow = {
  name: 'password',
  addRoutes(scope, context) {
    const countAddress = createRateLimit({
      ...context.services,
      kind: 'password-address',
      perMinute: TRIES_PER_MINUTE.address,
    })
    scope.addSchema(PASSWORD_SCHEMA)
    scope.route<{ Body: PasswordBody }>({
      method: 'POST',
      url: '/auth/password',
      bodyLimit: BODY_LIMIT_BYTES,
      schema: SCHEMA,
      async onRequest(request) {
        await countAddress(networkOf(request.ip))
        requireJson(request)
      },
      handler: createPassword(context),
    })
  },
}

/**
 * Sends the facts of the new session. User name and password go to the token endpoint and nowhere else.
 */
function createPassword(context: LoginContext) {
  const { services, redeem, signIn, sessionFacts } = context
  const { config, authorizationClient, vault } = services
  const countNameAndAddress = createRateLimit({
    ...services,
    kind: 'password-name-address',
    perMinute: TRIES_PER_MINUTE.usernameAndAddress,
  })
  const countUsername = createRateLimit({
    ...services,
    kind: 'password-username',
    perMinute: TRIES_PER_MINUTE.username,
  })

  return async function password(
    request: FastifyRequest<{ Body: PasswordBody }>,
    reply: FastifyReply,
  ): Promise<object> {
    const { username, password } = request.body
    const name = countedAs(username)
    // What the narrow limit refuses does not count to the wide one.
    await countNameAndAddress(`${name} ${networkOf(request.ip)}`)
    await countUsername(name)
    const outcome = await redeem({}, async () => {
      // While the store is down no tokens are requested, since they could not be stored.
      await vault.ping()
      return await authorizationClient.redeemGrant('password', {
        // A field of this grant too (service document, section 5.3).
        redirect_uri: config.publicUrl + PATHS.callback,
        username,
        password: new Secret(password),
      })
    })
    const refused = problem('invalid_credentials')
    const tokens = requireTokens(services, outcome, { refused, request })
    return sessionFacts(await signIn(request, reply, { tokens, flow: 'password' }))
  }
}

/** One name for all spellings of a user name that a directory might take for the same. */
function countedAs(username: string): string {
  return username
    .normalize('NFKD')
    .toUpperCase()
    .toLowerCase()
    .normalize('NFKD')
    .replace(/[\p{M}\p{C}\s]/gu, '')
}
