import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import { addJsonBodies, requireJson } from '../http/body.ts'
import { isNavigation, type ProblemPage } from '../http/problems.ts'
import { PATHS } from '../paths.ts'
import { addBrowserSession, addCookies, type BrowserSessionOptions } from '../session/fastify-session.ts'
import { comesFromOwnOrigin, OWN_ORIGIN_ONLY } from '../session/same-origin.ts'
import { requireNonce } from './authorization-answer.ts'
import type { CallbackOptions } from './callback.ts'
import { createCallback } from './callback.ts'
import type { FragmentOptions } from './implicit.ts'
import { createFragment, FRAGMENT_SCHEMA } from './implicit.ts'
import { FORGET_FRAGMENT } from './implicit-page.ts'
import { createLogout, type LogoutOptions } from './logout.ts'
import { sendPage } from './pages.ts'
import type { PasswordOptions } from './password.ts'
import { createPassword, PASSWORD_SCHEMA } from './password.ts'
import type { RateLimit } from './rate-limit.ts'
import { networkOf } from './rate-limit.ts'
import type { SessionInfoOptions } from './session-info.ts'
import { createSessionInfo } from './session-info.ts'
import type { StartOptions } from './start.ts'
import { createStart } from './start.ts'

export type LoginOptions = CallbackOptions &
  StartOptions &
  LogoutOptions &
  SessionInfoOptions &
  FragmentOptions &
  PasswordOptions & {
    session: BrowserSessionOptions
    /** Throws where this client tries too many passwords. */
    countPasswords: RateLimit
  }

/** Both bodies are a few members; a token may be long. */
const BODY_LIMIT_BYTES = 16_384

/** The paths of this room and what they take; for the answer to any other method. */
export function loginPaths({ flows, redirect }: Pick<LoginOptions, 'flows' | 'redirect'>) {
  const perLogin = redirect === 'fixed' ? 'POST' : 'GET, POST'
  const page = createFaultPage(flows)
  return [
    { path: PATHS.login, allow: 'GET', page },
    { path: PATHS.callback, allow: 'GET', page },
    { path: PATHS.callbackOfLogin, allow: flows.has('token') ? perLogin : 'GET', page },
    { path: PATHS.session, allow: 'GET, HEAD' },
    { path: PATHS.logout, allow: 'POST' },
    ...(flows.has('password') ? [{ path: PATHS.password, allow: 'POST' }] : []),
  ]
}

/**
 * Sign-in as the browser sees it: start, callback, session facts, logout, and the flows that are served
 * only where they are asked for. No token stays in it.
 */
export async function addLogin(app: FastifyInstance, options: LoginOptions): Promise<void> {
  await app.register(async (auth) => {
    await addCookies(auth, options.cookies)
    addPages(auth, createFaultPage(options.flows))
    // Before anything that would ask the store.
    auth.addHook('onRequest', async (request) => {
      if (request.method !== 'POST') return
      if (!comesFromOwnOrigin(request.method, request.headers, options.publicUrl))
        throw problem('cross_origin', OWN_ORIGIN_ONLY)
    })
    auth.get(PATHS.login, { config: { page: true } }, createStart(options))
    // Outside of the browser session: whether it can be read is no matter to its end.
    const logout = createLogout(options)
    // Answered before the body is read: browsers send whatever a page or a form gives them.
    auth.route({ method: 'POST', url: PATHS.logout, onRequest: logout, handler: logout })

    await auth.register(async (scope) => {
      await addBrowserSession(scope, options.session)
      const path = options.redirect === 'fixed' ? PATHS.callback : PATHS.callbackOfLogin
      scope.get(path, { config: { page: true, newSession: true } }, createCallback(options))
      scope.route({ method: ['GET', 'HEAD'], url: PATHS.session, handler: createSessionInfo(options) })
      addDiscouragedFlows(scope, options)
    })
  })
}

/** What the flows besides `code` need (RFC 9700 advises against them), each only where it is permitted. */
function addDiscouragedFlows(scope: FastifyInstance, options: LoginOptions): void {
  const { flows, countPasswords } = options
  addJsonBodies(scope)
  const common = { method: 'POST', bodyLimit: BODY_LIMIT_BYTES } as const
  if (flows.has('token')) {
    scope.route({
      ...common,
      url: PATHS.callbackOfLogin,
      config: { newSession: true, page: true },
      schema: { body: FRAGMENT_SCHEMA },
      async onRequest(request) {
        requireNonce((request.params as { nonce: string }).nonce)
        requireJson(request)
      },
      handler: createFragment(options),
    })
  }
  if (flows.has('password')) {
    scope.route({
      ...common,
      url: PATHS.password,
      config: { newSession: true },
      schema: { body: PASSWORD_SCHEMA },
      async onRequest(request) {
        countPasswords(networkOf(request.ip))
        requireJson(request)
      },
      handler: createPassword(options),
    })
  }
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** A browser that navigates here sees a problem as a page. */
    page?: boolean
  }
}

/** How to show a problem to the person who navigates here; null where nobody does. */
type FaultPage = (request: FastifyRequest, reply: FastifyReply) => ProblemPage | null

/** Lets the one error handler of the app answer with a page where a person looks at it. */
function addPages(scope: FastifyInstance, faultPage: FaultPage): void {
  scope.addHook('onRequest', async (request, reply) => {
    if (request.routeOptions.config.page === true) request.problemPage = faultPage(request, reply)
  })
}

function createFaultPage(flows: LoginOptions['flows']): FaultPage {
  const script = flows.has('token') ? { script: FORGET_FRAGMENT } : {}
  return (request, reply) => {
    if (!isNavigation(request)) return null
    return ({ status, title, detail, members: { loginUrl } }) =>
      sendPage(reply, {
        status,
        title,
        text: detail ?? `${title}.`,
        link: { href: loginUrl ?? '/', words: loginUrl ? 'Try again' : 'Go to the start' },
        requestId: request.id,
        ...script,
      })
  }
}
