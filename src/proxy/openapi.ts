import type { Config } from '../config/config.ts'
import { inPath, inQuery, jsonBody, type OpenApiFragment, problemResponse } from '../http/openapi.ts'
import { FLUX_ID, PATHS, WAC } from '../paths.ts'
import { MEDIA_TYPE } from './format.ts'
import { SITE_BODY_SCHEMA } from './update-site.ts'

/** GetFlux and UpdateSite as browsers call them. */
export function proxyOpenApi({ clientFluxAllowed }: Pick<Config, 'clientFluxAllowed'>): OpenApiFragment {
  // The session is optional where the application may read by itself.
  const security = clientFluxAllowed === null ? {} : { security: [{ session: [] }, {}] }
  return {
    paths: {
      [PATHS.flux]: { get: { ...getFlux([FLUX_ID_PARAMETER]), ...security } },
      [PATHS.fluxOfAccount]: { get: { ...getFlux([WAC_PARAMETER, FLUX_ID_PARAMETER]), ...security } },
      [PATHS.site]: { put: updateSite([SITE_ID_PARAMETER]) },
      [PATHS.siteOfAccount]: { put: updateSite([WAC_PARAMETER, SITE_ID_PARAMETER]) },
      [PATHS.siteInBody]: { post: updateSite([]) },
      [PATHS.siteInBodyAsJson]: { post: updateSite([]) },
    },
    schemas: { SiteUpdate: SITE_BODY_SCHEMA },
  }
}

const WAC_PARAMETER = inPath('wac', WAC.source)
const FLUX_ID_PARAMETER = inPath('fluxId', FLUX_ID.source)
const SITE_ID_PARAMETER = inPath('siteId', '^[0-9]{1,16}(\\.json)?$')

const CALL_PROBLEMS = {
  400: problemResponse('invalid_request'),
  401: problemResponse('login_required'),
  403: problemResponse('cross_origin, wac_not_allowed, upstream_refused'),
  502: problemResponse('upstream_unavailable'),
  503: problemResponse('store_unavailable, authorization_server_unavailable'),
  504: problemResponse('upstream_timeout'),
  default: problemResponse("upstream_error, with the resource server's own status"),
}

function getFlux(parameters: object[]) {
  const formats = Object.keys(MEDIA_TYPE)
  return {
    summary: 'GetFlux',
    parameters: [...parameters, inQuery('format', { type: 'string', enum: formats })],
    responses: {
      200: {
        description: 'The answer of the resource server, byte for byte.',
        content: Object.fromEntries(Object.values(MEDIA_TYPE).map((type) => [type, {}])),
      },
      406: problemResponse('not_acceptable'),
      ...CALL_PROBLEMS,
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
    requestBody: jsonBody('SiteUpdate'),
    responses: {
      200: { description: 'The updated Site, byte for byte.', content: { 'application/json': {} } },
      413: problemResponse('payload_too_large'),
      415: problemResponse('unsupported_media_type'),
      ...CALL_PROBLEMS,
    },
  }
}
