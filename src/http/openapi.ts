import { PROBLEM_CODES } from '../errors.ts'

/** OpenAPI 3.1 description of what browsers may call, as data; `publicUrl` is its one server. */
export function openApiDocument(
  publicUrl: string,
  callbackPath: '/auth/callback' | '/auth/callback/{nonce}',
) {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Backend for frontend',
      version: '1',
      description:
        'Sign-in, session and calls to the data platform for a single-page app on the same origin. The session cookie is the only credential; no answer holds a token.',
    },
    servers: [{ url: publicUrl }],
    security: [{ session: [] }],
    paths: {
      '/auth/login': { get: LOGIN },
      [callbackPath]: { get: callback(callbackPath.endsWith('}')) },
      '/auth/session': { get: SESSION },
      '/auth/logout': { post: LOGOUT },
      '/flux/{fluxId}': { get: getFlux([FLUX_ID]) },
      '/flux/{wac}/{fluxId}': { get: getFlux([WAC, FLUX_ID]) },
      '/site/{siteId}': { put: updateSite([SITE_ID]) },
      '/site/{wac}/{siteId}': { put: updateSite([WAC, SITE_ID]) },
      '/site': { post: updateSite([]) },
      '/site.json': { post: updateSite([]) },
    },
    components: {
      securitySchemes: {
        session: {
          type: 'apiKey',
          in: 'cookie',
          name: publicUrl.startsWith('https:') ? '__Host-Http-session' : 'session',
        },
      },
      schemas: { Problem: PROBLEM, Session: SESSION_FACTS, SiteUpdate: SITE_UPDATE },
    },
  }
}

const PROBLEM = {
  type: 'object',
  description: 'RFC 9457',
  required: ['type', 'title', 'status', 'detail', 'code', 'requestId'],
  properties: {
    type: { type: 'string' },
    title: { type: 'string' },
    status: { type: 'integer' },
    detail: { type: 'string' },
    code: { enum: PROBLEM_CODES, description: 'Stable; what a program should look at.' },
    requestId: { type: 'string' },
    loginUrl: { type: 'string', description: 'Where to navigate to sign in.' },
  },
}

const INSTANT = { type: 'string', format: 'date-time' }
const SESSION_FACTS = {
  oneOf: [
    {
      type: 'object',
      required: ['authenticated', 'loginUrl'],
      properties: { authenticated: { const: false }, loginUrl: { type: 'string' } },
    },
    {
      type: 'object',
      required: [
        'authenticated',
        'flow',
        'createdAt',
        'idleExpiresAt',
        'expiresAt',
        'accessTokenExpiresAt',
        'refreshable',
        'wac',
      ],
      properties: {
        authenticated: { const: true },
        flow: { type: 'string' },
        createdAt: INSTANT,
        idleExpiresAt: INSTANT,
        expiresAt: INSTANT,
        accessTokenExpiresAt: INSTANT,
        refreshable: { type: 'boolean' },
        wac: { type: ['string', 'null'], description: 'The default account code.' },
      },
    },
  ],
}

const SITE_UPDATE = {
  type: 'object',
  additionalProperties: false,
  properties: {
    name: { type: 'string' },
    description: { type: 'string' },
    code: { type: 'string' },
    parentInfrastructureID: {
      type: ['integer', 'null'],
      minimum: Number.MIN_SAFE_INTEGER,
      maximum: Number.MAX_SAFE_INTEGER,
      description: 'null: no parent; absent: unchanged.',
    },
    wType: { const: 'UpdateSite' },
    siteID: { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
    wac: { type: 'string', pattern: '^[A-Za-z0-9_-]{1,64}$' },
  },
}

const inPath = (name: string, pattern: string) => ({
  name,
  in: 'path',
  required: true,
  schema: { type: 'string', pattern },
})
const inQuery = (name: string, schema: object) => ({ name, in: 'query', schema })
const WAC = inPath('wac', '^[A-Za-z0-9_-]{1,64}$')
const FLUX_ID = inPath('fluxId', '^[A-Za-z0-9_.~-]{1,128}$')
const SITE_ID = inPath('siteId', '^[0-9]{1,16}(\\.json)?$')

const answer = (description: string) => ({ description })
const fault = (description: string) => ({
  description,
  content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
})
const sessionAnswer = {
  description: 'What is known of the session; it is not extended.',
  content: { 'application/json': { schema: { $ref: '#/components/schemas/Session' } } },
}

const LOGIN = {
  operationId: 'login',
  summary: 'Navigate here to sign in',
  security: [],
  parameters: [inQuery('returnTo', { type: 'string', default: '/', description: 'A path of this site.' })],
  responses: {
    200: answer('A page with a button, where another site has sent the browser here.'),
    303: answer('To the authorization server.'),
    400: fault('invalid_return_to, invalid_request'),
    403: fault('cross_origin: not a navigation'),
    429: fault('rate_limited'),
  },
}

function callback(perLogin: boolean) {
  return {
    operationId: 'callback',
    summary: 'Where the authorization server sends the browser back to',
    security: [],
    parameters: [
      ...(perLogin ? [inPath('nonce', '^[A-Za-z0-9_-]{43}$')] : []),
      ...['code', 'error', 'state', 'iss'].map((name) => inQuery(name, { type: 'string' })),
    ],
    responses: {
      303: answer('Signed in, or `login_error` is added to the query of the return address.'),
      400: fault('invalid_request, login_failed'),
      502: fault('upstream_unavailable'),
      503: fault('store_unavailable, authorization_server_unavailable'),
      504: fault('upstream_timeout'),
    },
  }
}

const SESSION = {
  operationId: 'session',
  summary: 'Whether somebody is signed in, and until when',
  security: [],
  responses: { 200: sessionAnswer, 503: fault('store_unavailable') },
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

const CALL_FAULTS = {
  400: fault('invalid_request'),
  401: fault('login_required'),
  403: fault('cross_origin, wac_not_allowed, upstream_refused'),
  502: fault('upstream_unavailable'),
  503: fault('store_unavailable, authorization_server_unavailable'),
  504: fault('upstream_timeout'),
  default: fault("upstream_error, with the resource server's own status"),
}

function getFlux(parameters: object[]) {
  const types = ['application/json', 'application/xml', 'text/csv', 'text/jsv']
  return {
    summary: 'GetFlux',
    parameters: [...parameters, inQuery('format', { type: 'string', enum: ['JSON', 'XML', 'CSV', 'JSV'] })],
    responses: {
      200: {
        description: 'The answer of the resource server, byte for byte.',
        content: Object.fromEntries(types.map((type) => [type, {}])),
      },
      406: fault('not_acceptable'),
      ...CALL_FAULTS,
    },
  }
}

function updateSite(parameters: object[]) {
  return {
    summary: 'UpdateSite',
    parameters: [
      ...parameters,
      inQuery('format', { type: 'string', enum: ['json'] }),
      inQuery('callback', { type: 'string', maxLength: 64, description: 'Wraps the answer as JSONP.' }),
    ],
    requestBody: {
      required: true,
      content: { 'application/json': { schema: { $ref: '#/components/schemas/SiteUpdate' } } },
    },
    responses: {
      200: { description: 'The updated Site, byte for byte.', content: { 'application/json': {} } },
      413: fault('payload_too_large'),
      415: fault('unsupported_media_type'),
      ...CALL_FAULTS,
    },
  }
}
