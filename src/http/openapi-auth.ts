import type { Config } from '../config/config.ts'
import { answer, bodyOf, fault, inPath, inQuery } from './openapi-schemas.ts'

type Flows = Config['oauth']['flows']

/** What signs in and out, by path: what is served with these settings and nothing else. */
export function authPaths(flows: Flows, redirect: Config['oauth']['redirect']): Record<string, object> {
  const perLogin = redirect === 'per-login'
  const paths: Record<string, object> = {
    '/auth/login': { get: login(flows) },
    '/auth/callback': perLogin ? {} : { get: callback(flows, []) },
    '/auth/callback/{nonce}': {
      ...(perLogin ? { get: callback(flows, [NONCE]) } : {}),
      ...(flows.has('token') ? { post: FRAGMENT } : {}),
    },
    '/auth/session': { get: SESSION },
    '/auth/logout': { post: LOGOUT },
    '/auth/password': flows.has('password') ? { post: PASSWORD } : {},
  }
  return Object.fromEntries(Object.entries(paths).filter(([, methods]) => Object.keys(methods).length > 0))
}

const NONCE = inPath('nonce', '^[A-Za-z0-9_-]{43}$')

const sessionAnswer = (description: string) => ({
  description,
  content: { 'application/json': { schema: { $ref: '#/components/schemas/Session' } } },
})

const SIGN_IN_FAULTS = {
  502: fault('upstream_unavailable'),
  503: fault('store_unavailable, authorization_server_unavailable'),
  504: fault('upstream_timeout'),
}

const BODY_FAULTS = {
  403: fault('cross_origin'),
  413: fault('payload_too_large'),
  415: fault('unsupported_media_type'),
}

function login(flows: Flows) {
  const returnTo = inQuery('returnTo', { type: 'string', default: '/', description: 'A path of this site.' })
  const permitted = ['code', 'token'].filter((flow) => (flows as ReadonlySet<string>).has(flow))
  return {
    operationId: 'login',
    summary: 'Navigate here to sign in',
    security: [],
    parameters: [
      returnTo,
      ...(flows.has('token') ? [inQuery('flow', { type: 'string', enum: permitted })] : []),
    ],
    responses: {
      200: answer('A page with a button, where another site has sent the browser here.'),
      303: answer('To the authorization server.'),
      400: fault('invalid_return_to, invalid_request'),
      403: fault('cross_origin: not a navigation'),
      429: fault('rate_limited'),
    },
  }
}

function callback(flows: Flows, parameters: object[]) {
  const page = answer('A page that hands the fragment to this server (token flow).')
  return {
    operationId: 'callback',
    summary: 'Where the authorization server sends the browser back to',
    security: [],
    parameters: [
      ...parameters,
      ...['code', 'error', 'state', 'iss'].map((name) => inQuery(name, { type: 'string' })),
    ],
    responses: {
      ...(flows.has('token') ? { 200: page } : {}),
      303: answer('Signed in, or `login_error` is added to the query of the return address.'),
      400: fault('invalid_request, login_failed'),
      ...SIGN_IN_FAULTS,
    },
  }
}

const FRAGMENT = {
  operationId: 'callbackFragment',
  summary: 'What the page of the callback sends in the token flow',
  security: [],
  parameters: [NONCE],
  requestBody: bodyOf('FragmentAnswer'),
  responses: {
    200: sessionAnswer('Signed in; `Location` says where to go.'),
    400: fault('invalid_request, login_failed; `Location`, where there is one, says where to go'),
    ...BODY_FAULTS,
    503: fault('store_unavailable'),
  },
}

const PASSWORD = {
  operationId: 'password',
  summary: 'Sign in by user name and password',
  security: [],
  requestBody: bodyOf('PasswordSignIn'),
  responses: {
    200: sessionAnswer('Signed in.'),
    400: fault('invalid_request'),
    401: fault('invalid_credentials'),
    ...BODY_FAULTS,
    429: fault('rate_limited'),
    ...SIGN_IN_FAULTS,
  },
}

const SESSION = {
  operationId: 'session',
  summary: 'Whether somebody is signed in, and until when',
  security: [],
  responses: {
    200: sessionAnswer('What is known of the session; it is not extended.'),
    503: fault('store_unavailable'),
  },
}

const LOGOUT = {
  operationId: 'logout',
  summary: 'End the session on every replica',
  responses: {
    204: answer('There is no session any more.'),
    403: fault('cross_origin'),
    503: fault('store_unavailable'),
  },
}
