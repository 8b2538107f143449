import type { Config } from '../config/config.ts'
import { authPaths } from './openapi-auth.ts'
import {
  bodyOf,
  FRAGMENT_ANSWER,
  fault,
  inPath,
  inQuery,
  PASSWORD_SIGN_IN,
  PROBLEM,
  SESSION_FACTS,
  SITE_UPDATE,
} from './openapi-schemas.ts'

/** OpenAPI 3.1 description of what browsers may call, as data: what is served with this configuration. */
export function openApiDocument({ publicUrl, oauth, clientFluxAllowed }: Config) {
  const { flows, redirect } = oauth
  // Without a session too, where the application itself may read.
  const flux = clientFluxAllowed === null ? {} : { security: [{ session: [] }, {}] }
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
      ...authPaths(flows, redirect),
      '/flux/{fluxId}': { get: { ...getFlux([FLUX_ID]), ...flux } },
      '/flux/{wac}/{fluxId}': { get: { ...getFlux([WAC, FLUX_ID]), ...flux } },
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
      schemas: {
        Problem: PROBLEM,
        Session: SESSION_FACTS,
        SiteUpdate: SITE_UPDATE,
        ...(flows.has('token') ? { FragmentAnswer: FRAGMENT_ANSWER } : {}),
        ...(flows.has('password') ? { PasswordSignIn: PASSWORD_SIGN_IN } : {}),
      },
    },
  }
}

const WAC = inPath('wac', '^[A-Za-z0-9_-]{1,64}$')
const FLUX_ID = inPath('fluxId', '^[A-Za-z0-9_.~-]{1,128}$')
const SITE_ID = inPath('siteId', '^[0-9]{1,16}(\\.json)?$')

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
    requestBody: bodyOf('SiteUpdate'),
    responses: {
      200: { description: 'The updated Site, byte for byte.', content: { 'application/json': {} } },
      413: fault('payload_too_large'),
      415: fault('unsupported_media_type'),
      ...CALL_FAULTS,
    },
  }
}
