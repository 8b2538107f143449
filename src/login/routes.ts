import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import type { SessionFlow } from '../config/variables.ts'
import type { Problem, ProblemCode } from '../errors.ts'
import { addJsonBodies } from '../http/body.ts'
import type { KnownPath } from '../http/hooks.ts'
import type { OpenApiFragment } from '../http/openapi.ts'
import { PATHS } from '../paths.ts'
import { addBrowserSession, addCookies } from '../session/fastify-session.ts'
import { comesFromOwnOrigin, crossOrigin } from '../session/same-origin.ts'
import { callbackOpenApi, callbackPath, createCallback } from './callback.ts'
import type { LoginOptions } from './context.ts'
import { createLoginCookies } from './login-cookies.ts'
import { createLogout, LOGOUT_OPENAPI } from './logout.ts'
import type { OptionalFlow } from './optional-flow.ts'
import { createSignInProblemPage } from './pages.ts'
import { PASSWORD_FLOW } from './password-flow.ts'
import { createRateLimit } from './rate-limit.ts'
import { createSessionFacts, createSessionInfo, createStaySignedIn, SESSION_OPENAPI } from './session-info.ts'
import { browserOf, createRedeem, createSignIn, type SignInFailure } from './sign-in.ts'
import { createStart, startOpenApi } from './start.ts'
import { FORGET_FRAGMENT, TOKEN_FLOW } from './token-flow.ts'

type Oauth = Config['oauth']

/** The flows besides `code`; RFC 9700 advises against them. Each is served only if `OAUTH_FLOWS` names it. */
const OPTIONAL_FLOWS: Readonly<Record<Exclude<SessionFlow, 'code'>, OptionalFlow>> = {
  token: TOKEN_FLOW,
  password: PASSWORD_FLOW,
}

/** A browser that navigates here sees a problem as a page. */
const PAGES: ReadonlySet<string | undefined> = new Set([PATHS.login, PATHS.callback, PATHS.callbackOfLogin])

/** The routes that do not sign in. A problem of any other route is a failed sign-in. */
const NO_SIGN_IN: ReadonlySet<string | undefined> = new Set([PATHS.session, PATHS.logout])

const FAILURES: Partial<Record<ProblemCode, SignInFailure>> = {
  login_failed: 'login_failed',
  invalid_credentials: 'login_failed',
  authorization_server_unavailable: 'unavailable',
  upstream_unavailable: 'unavailable',
  upstream_timeout: 'unavailable',
  store_unavailable: 'store',
  rate_limited: 'rate_limited',
}

const TOO_MANY_SIGN_INS =
  'too many sign-ins from one address: if they are those of many users, raise LOGIN_RATE_PER_MINUTE'
const TOO_MANY_PASSWORDS = 'too many passwords: the limits are fixed, so wait for a minute'

function servedFlows({ flows }: Oauth): readonly OptionalFlow[] {
  return Object.values(OPTIONAL_FLOWS).filter(({ name }) => flows.has(name))
}

/** The paths of this folder with their methods, for the response to any other method. The first match counts. */
export function loginPaths(oauth: Oauth): KnownPath[] {
  const page = createSignInProblemPage(oauth.flows.has('token') ? FORGET_FRAGMENT : undefined)
  const paths: KnownPath[] = [
    ...servedFlows(oauth).flatMap(({ knownPaths }) => knownPaths(oauth.redirect)),
    { path: PATHS.login, allow: 'GET' },
    { path: callbackPath(oauth.redirect), allow: 'GET' },
    { path: PATHS.session, allow: 'GET, HEAD, POST' },
    { path: PATHS.logout, allow: 'POST' },
  ]
  return paths.map((known) => (PAGES.has(known.path) ? { ...known, page } : known))
}

/** The OpenAPI document's parts on this folder, as served with this configuration. */
export function loginOpenApi(oauth: Oauth): OpenApiFragment[] {
  return [
    startOpenApi(oauth.flows),
    callbackOpenApi(oauth),
    SESSION_OPENAPI,
    LOGOUT_OPENAPI,
    ...servedFlows(oauth).map(({ openApi }) => openApi),
  ]
}

/** Serves sign-in, session facts and logout. Tokens go from here to the session, and never to the browser. */
export async function addLogin(app: FastifyInstance, options: LoginOptions): Promise<void> {
  const { config, store, cookies, keyring, clock, log } = options
  const { oauth, publicUrl } = config
  const loginCookies = createLoginCookies({ keyring, cookies, publicUrl, oauth, now: clock.wall })
  const context = {
    ...options,
    loginCookies,
    countCallback: createRateLimit({ perMinute: config.loginRatePerMinute, clock }),
    redeem: createRedeem(),
    signIn: createSignIn({ ...options, loginCookies }),
    sessionFacts: createSessionFacts({ defaultWac: config.wac.default, now: clock.wall }),
  }

  function noteFailure(request: FastifyRequest, { code, headers }: Problem): void {
    const reason = FAILURES[code]
    // An authorization response that is an error has a location, and its handler has counted it.
    if (reason !== undefined && headers.location === undefined) options.onSignInFailed(reason)
    if (code !== 'rate_limited') return
    const line = { event: 'rate_limit.exceeded', ...browserOf(request, cookies) }
    const path = request.routeOptions.url
    const cause = PAGES.has(path) ? TOO_MANY_SIGN_INS : TOO_MANY_PASSWORDS
    log.warn({ ...line, path }, cause)
  }

  await app.register(async (scope) => {
    await addCookies(scope)
    scope.addHook('onRequest', async (request) => {
      // Before anything that reads the store.
      if (request.method !== 'POST') return
      if (!comesFromOwnOrigin(request.method, request.headers, publicUrl))
        throw crossOrigin(request.headers, publicUrl)
    })
    scope.addHook('onResponse', async (request) => {
      if (request.sentProblem === null || NO_SIGN_IN.has(request.routeOptions.url)) return
      noteFailure(request, request.sentProblem)
    })
    scope.get(PATHS.login, createStart(context))
    // Outside of the browser session: a session that cannot be read can still be ended.
    const logout = createLogout(context)
    // The hook responds before the body is read: browsers send any body that a page or a form gives them. The handler,
    // which Fastify requires, never runs.
    scope.route({ method: 'POST', url: PATHS.logout, onRequest: logout, handler: logout })

    await scope.register(async (inSession) => {
      await addBrowserSession(inSession, { cookies, store })
      inSession.get(callbackPath(oauth.redirect), createCallback(context))
      inSession.route({ method: ['GET', 'HEAD'], url: PATHS.session, handler: createSessionInfo(context) })
      const staySignedIn = createStaySignedIn(context)
      // As for the logout: the hook responds.
      inSession.route({ method: 'POST', url: PATHS.session, onRequest: staySignedIn, handler: staySignedIn })
      addJsonBodies(inSession)
      for (const flow of servedFlows(oauth)) flow.addRoutes(inSession, context)
    })
  })
}
