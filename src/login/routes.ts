import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { Config } from '../config/config.ts'
import type { SessionFlow } from '../config/variables.ts'
import type { Problem, ProblemCode } from '../errors.ts'
import { addJsonBodies } from '../http/body.ts'
import { comesFromOwnOrigin, crossOrigin } from '../http/same-origin.ts'
import { PATHS } from '../paths.ts'
import { callbackPath, callbackSchema, createCallback } from './callback.ts'
import type { LoginContext, LoginOptions } from './context.ts'
import {
  createDevices,
  createRequireDevice,
  INSTRUCTIONS_SCHEMA,
  REFRESH_SCHEMA,
  REGISTER_SCHEMA,
} from './device.ts'
import { addBrowserSession, addCookies, addNewSession } from './fastify-session.ts'
import { createLoginCookies } from './login-cookies.ts'
import { createLogout, endSessionUrlOf, LOGOUT_SCHEMA, SIGNED_OUT_SCHEMA } from './logout.ts'
import type { OptionalFlow } from './optional-flow.ts'
import { createSignInProblemPage } from './pages.ts'
import { PASSWORD_FLOW } from './password-flow.ts'
import { createRateLimit } from './rate-limit.ts'
import {
  createSessionFacts,
  createSessionInfo,
  createStaySignedIn,
  SESSION_SCHEMA,
  SHARED_SCHEMAS,
  STAY_SCHEMA,
} from './session-info.ts'
import { browserOf, createRedeem, createSignIn, type SignInFailure } from './sign-in.ts'
import { createStart, startSchema } from './start.ts'
import { FORGET_FRAGMENT, TOKEN_FLOW } from './token-flow.ts'

type Oauth = Config['oauth']

/** The flows besides `code`; RFC 9700 advises against them. Each is served only if `OAUTH_FLOWS` names it. */
const OPTIONAL_FLOWS: Readonly<Record<Exclude<SessionFlow, 'code'>, OptionalFlow>> = {
  token: TOKEN_FLOW,
  password: PASSWORD_FLOW,
}

/** The routes that do not sign in. A problem of any other route is a failed sign-in. */
const NO_SIGN_IN: ReadonlySet<string | undefined> = new Set([
  PATHS.session,
  PATHS.logout,
  PATHS.device,
  PATHS.deviceRefresh,
])

const FAILURES: Partial<Record<ProblemCode, SignInFailure>> = {
  login_failed: 'login_failed',
  invalid_credentials: 'login_failed',
  authorization_server_unavailable: 'unavailable',
  upstream_unavailable: 'unavailable',
  upstream_timeout: 'unavailable',
  store_unavailable: 'store',
  rate_limited: 'rate_limited',
}

/** Chromium 150 registers a device without saying where the request comes from. The challenge in it says so. */
function isBareRegistration({ headers, routeOptions: { url } }: FastifyRequest): boolean {
  return url === PATHS.device && headers.origin === undefined && headers['sec-fetch-site'] === undefined
}

const TOO_MANY_SIGN_INS =
  'too many sign-ins from one address: if they are those of many users, raise LOGIN_RATE_PER_MINUTE'
const TOO_MANY_PASSWORDS = 'too many passwords: the limits are fixed, so wait for a minute'

function servedFlows({ flows }: Oauth): readonly OptionalFlow[] {
  return Object.values(OPTIONAL_FLOWS).filter(({ name }) => flows.has(name))
}

/** Serves sign-in, session facts and logout. Tokens go from here to the session, and never to the browser. */
export const login = fastifyPlugin<LoginOptions>(addLogin, {
  name: 'login',
  dependencies: ['hooks', 'openapi'],
  encapsulate: true,
})

async function addLogin(scope: FastifyInstance, services: LoginOptions): Promise<void> {
  const { config, vault, cookies, keyring, clock, log, observe } = services
  const { oauth, publicUrl } = config
  const loginCookies = createLoginCookies({ keyring, cookies, publicUrl, oauth, now: clock.wall })
  const page = createSignInProblemPage(oauth.flows.has('token') ? FORGET_FRAGMENT : undefined)
  const requireDevice = createRequireDevice(services)
  const sessionFacts = createSessionFacts({ defaultWac: config.wac.default, now: clock.wall })
  const context: LoginContext = {
    services,
    loginCookies,
    problemPage: page,
    countCallback: createRateLimit({ ...services, kind: 'callback', perMinute: config.loginRatePerMinute }),
    redeem: createRedeem(),
    signIn: createSignIn(services),
    sessionFacts,
  }

  function noteFailure(request: FastifyRequest, { code, headers }: Problem): void {
    const reason = FAILURES[code]
    // An authorization response that is an error has a location, and its handler has counted it.
    if (reason !== undefined && headers.location === undefined) observe.signInFailed(reason)
    if (code !== 'rate_limited') return
    const line = { event: 'rate_limit.exceeded', ...browserOf(request, cookies) }
    const path = request.routeOptions.url
    const cause = request.routeOptions.config.page ? TOO_MANY_SIGN_INS : TOO_MANY_PASSWORDS
    log.warn({ ...line, path }, cause)
  }

  await addCookies(scope)
  scope.addHook('onRequest', async (request) => {
    // Before anything that reads the store.
    if (request.method !== 'POST' || isBareRegistration(request)) return
    if (!comesFromOwnOrigin(request.method, request.headers, publicUrl))
      throw crossOrigin(request.headers, publicUrl)
  })
  scope.addHook('onResponse', async (request) => {
    const { sentProblem } = request
    if (sentProblem === null || sentProblem.isExpected || NO_SIGN_IN.has(request.routeOptions.url)) return
    noteFailure(request, sentProblem)
  })
  for (const schema of SHARED_SCHEMAS) scope.addSchema(schema)
  scope.addSchema(SIGNED_OUT_SCHEMA)
  scope.get(PATHS.login, { schema: startSchema(oauth.flows), config: { page } }, createStart(context))

  const { devices } = vault
  if (devices !== null) addDevices(scope, createDevices({ devices, look: vault.look, cookies, log, observe }))

  const browserSession = { vault, cookies, sessionFacts }
  await scope.register(async function ofSession(inSession) {
    await addBrowserSession(inSession, browserSession)
    inSession.route({
      method: ['GET', 'HEAD'],
      url: PATHS.session,
      schema: SESSION_SCHEMA,
      handler: createSessionInfo({ vault, cookies, requireDevice }),
    })
    inSession.route({
      method: 'POST',
      url: PATHS.session,
      schema: STAY_SCHEMA,
      ...beforeBody(createStaySignedIn({ vault, cookies, requireDevice })),
    })
  })

  await scope.register(async function ofSignOut(signingOut) {
    // A read before the end would double the wait for a store that does not reply.
    await addBrowserSession(signingOut, { ...browserSession, reads: false })
    const logout = createLogout({ vault, cookies, log, endSessionUrl: endSessionUrlOf(config) })
    signingOut.route({
      method: 'POST',
      url: PATHS.logout,
      schema: LOGOUT_SCHEMA,
      ...beforeBody(logout),
    })
  })

  await scope.register(async function ofSignIn(signingIn) {
    await addNewSession(signingIn, browserSession)
    const callback = { schema: callbackSchema(oauth), config: { page } }
    signingIn.get(callbackPath(oauth.redirect), callback, createCallback(context))
    addJsonBodies(signingIn)
    for (const flow of servedFlows(oauth)) flow.addRoutes(signingIn, context)
  })
}

function addDevices(scope: FastifyInstance, { register, refresh }: ReturnType<typeof createDevices>): void {
  const method = 'POST'
  scope.addSchema(INSTRUCTIONS_SCHEMA)
  scope.route({ method, url: PATHS.device, schema: REGISTER_SCHEMA, ...beforeBody(register) })
  scope.route({ method, url: PATHS.deviceRefresh, schema: REFRESH_SCHEMA, ...beforeBody(refresh) })
}

/**
 * Responds before the body is read: browsers send any body that a page or a form gives them, and Fastify refuses types that
 * it cannot read. The handler, which Fastify requires, never runs.
 */
function beforeBody(respond: (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>) {
  return { onRequest: respond, handler: respond }
}
