import type { Config } from '../config/config.ts'
import {
  inPath,
  inQuery,
  jsonBody,
  jsonResponse,
  type OpenApiFragment,
  plainResponse,
  problemResponse,
} from '../http/openapi.ts'
import { PATHS } from '../paths.ts'
import { NONCE } from './authorization-answer.ts'
import { FRAGMENT_SCHEMA } from './implicit.ts'
import { PASSWORD_SCHEMA } from './password.ts'
import { SESSION_SCHEMA } from './session-info.ts'

type Flows = Config['oauth']['flows']

/** The routes of sign-in and session that these settings serve. */
export function loginOpenApi({
  flows,
  redirect,
}: Pick<Config['oauth'], 'flows' | 'redirect'>): OpenApiFragment {
  const perLogin = redirect === 'per-login'
  return {
    paths: {
      [PATHS.login]: { get: login(flows) },
      [PATHS.callback]: perLogin ? {} : { get: callback(flows, []) },
      [PATHS.callbackOfLogin]: {
        ...(perLogin ? { get: callback(flows, [NONCE_PARAMETER]) } : {}),
        ...(flows.has('token') ? { post: FRAGMENT } : {}),
      },
      [PATHS.session]: { get: SESSION },
      [PATHS.logout]: { post: LOGOUT },
      [PATHS.password]: flows.has('password') ? { post: PASSWORD } : {},
    },
    schemas: {
      Session: SESSION_SCHEMA,
      ...(flows.has('token') ? { FragmentAnswer: FRAGMENT_SCHEMA } : {}),
      ...(flows.has('password') ? { PasswordSignIn: PASSWORD_SCHEMA } : {}),
    },
  }
}

const NONCE_PARAMETER = inPath('nonce', NONCE.source)

const SIGN_IN_PROBLEMS = {
  502: problemResponse('upstream_unavailable'),
  503: problemResponse('store_unavailable, authorization_server_unavailable'),
  504: problemResponse('upstream_timeout'),
}

const BODY_PROBLEMS = {
  403: problemResponse('cross_origin'),
  413: problemResponse('payload_too_large'),
  415: problemResponse('unsupported_media_type'),
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
      200: plainResponse('A page with a button, where another site has sent the browser here.'),
      303: plainResponse('To the authorization server.'),
      400: problemResponse('invalid_return_to, invalid_request'),
      403: problemResponse('cross_origin: not a navigation'),
      429: problemResponse('rate_limited'),
    },
  }
}

function callback(flows: Flows, parameters: object[]) {
  const page = plainResponse('A page that hands the fragment to this server (token flow).')
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
      303: plainResponse('Signed in, or `login_error` is added to the query of the return address.'),
      400: problemResponse('invalid_request, login_failed'),
      ...SIGN_IN_PROBLEMS,
    },
  }
}

const FRAGMENT = {
  operationId: 'callbackFragment',
  summary: 'What the page of the callback sends in the token flow',
  security: [],
  parameters: [NONCE_PARAMETER],
  requestBody: jsonBody('FragmentAnswer'),
  responses: {
    200: jsonResponse('Signed in; `Location` says where to go.', 'Session'),
    400: problemResponse('invalid_request, login_failed; `Location`, where there is one, says where to go'),
    ...BODY_PROBLEMS,
    503: problemResponse('store_unavailable'),
  },
}

const PASSWORD = {
  operationId: 'password',
  summary: 'Sign in by user name and password',
  security: [],
  requestBody: jsonBody('PasswordSignIn'),
  responses: {
    200: jsonResponse('Signed in.', 'Session'),
    400: problemResponse('invalid_request'),
    401: problemResponse('invalid_credentials'),
    ...BODY_PROBLEMS,
    429: problemResponse('rate_limited'),
    ...SIGN_IN_PROBLEMS,
  },
}

const SESSION = {
  operationId: 'session',
  summary: 'Whether somebody is signed in, and until when',
  security: [],
  responses: {
    200: jsonResponse('What is known of the session; it is not extended.', 'Session'),
    503: problemResponse('store_unavailable'),
  },
}

const LOGOUT = {
  operationId: 'logout',
  summary: 'End the session on every replica',
  responses: {
    204: plainResponse('There is no session any more.'),
    403: problemResponse('cross_origin'),
    503: problemResponse('store_unavailable'),
  },
}
