import type { FastifyRequest } from 'fastify'
import { FORMATS, type Format } from '../config/operations.ts'
import { problem } from '../errors.ts'
import { headersNamed, parameters, problemOrPage, requestHeaders } from '../http/openapi.ts'
import { FLUX_ID, PATHS } from '../paths.ts'
import { acceptedFormat, MEDIA_TYPE, namedFormat } from './formats.ts'
import {
  type AccountRules,
  FORWARD_PROBLEMS,
  forwardProblem,
  type OutgoingRequest,
  queryParameters,
  readWac,
  WAC_SCHEMA,
} from './outgoing-request.ts'

/** Parameters that would present another token, turn the response into a script, or change the method. */
const REJECTED = new Set([
  'access_token',
  'oauth_token',
  'callback',
  'x-http-method-override',
  'x-http-method',
  'x-method-override',
  '_method',
])

export interface FluxParams {
  wac?: string
  fluxId: string
}

/** GetFlux (service document, section 4.2) from a browser's request. Throws the problem with the request. */
export function readGetFlux(
  request: FastifyRequest<{ Params: FluxParams }>,
  accounts: AccountRules,
): OutgoingRequest {
  const fluxId = readFluxId(request.params.fluxId)
  const wac = readWac(request.params.wac, accounts)
  let format: Format | null = null
  const passed: string[] = []
  for (const { name, value, raw } of queryParameters(request.url)) {
    // Some servers read names in any case.
    const lowerName = name.trim().toLowerCase()
    if (REJECTED.has(lowerName))
      throw problem('invalid_request', `The parameter ${lowerName} is not allowed.`)
    // Some servers let a parameter of the query override the path's.
    if ((lowerName === 'wac' && value !== wac) || (lowerName === 'fluxid' && value !== fluxId)) {
      throw problem('invalid_request', `The parameter ${lowerName} does not agree with the path.`)
    }
    if (lowerName !== 'format') passed.push(raw)
    else if (format !== null) throw problem('invalid_request', 'The parameter format is repeated.')
    else format = namedFormat(value, FORMATS)
  }
  format ??= acceptedFormat(request.headers, FORMATS)
  const query = [`format=${format}`, ...passed].join('&')
  return {
    operation: 'GetFlux',
    wac,
    fluxId,
    targetId: fluxId,
    method: request.method === 'HEAD' ? 'HEAD' : 'GET',
    path: `/${wac}/flux/${fluxId}?${query}`,
    accept: MEDIA_TYPE[format],
    contentType: MEDIA_TYPE[format],
    body: null,
    jsonp: false,
  }
}

/** The id of a Flux. Throws `invalid_request`. */
function readFluxId(given: string): string {
  if (FLUX_ID.test(given)) return given
  throw problem('invalid_request', 'fluxId must be 1 to 128 letters, digits, "-", "_", "." or "~".')
}

/** A Flux, for the schemas of the routes. */
export const FLUX = {
  $id: 'Flux',
  description: "The resource server's document does not show the body of a Flux.",
}

/** The two routes of GetFlux. `isSessionOptional`: the application reads without a session. */
export function getFluxRoutes(isSessionOptional: boolean) {
  const content = {
    ...Object.fromEntries(
      Object.values(MEDIA_TYPE).map((type) => [
        type,
        { schema: type === 'application/json' ? { $ref: 'Flux#' } : { type: 'string' } },
      ]),
    ),
    '*/*': { schema: { type: 'string', description: 'Another type that the resource server chose.' } },
  }
  const headers = headersNamed('ETag', 'Last-Modified')
  const common = {
    tags: ['platform'],
    summary: 'GetFlux',
    querystring: parameters({
      format: {
        type: 'string',
        enum: Object.keys(MEDIA_TYPE),
        description: 'In any case. Default: by `Accept`, else by `Content-Type`, else JSON.',
      },
      parameters: {
        type: 'object',
        additionalProperties: { type: ['string', 'number', 'boolean'] },
        description: `Any other parameter, passed on under its own name; refused are ${[...REJECTED].join(', ')}.`,
      },
    }),
    headers: requestHeaders('If-None-Match', 'If-Modified-Since', 'Range'),
    response: {
      200: { description: 'The response of the resource server, byte for byte.', headers, content },
      206: { description: 'The range that was asked for.', headers, content },
      304: {
        type: 'null',
        description: 'Unchanged since `If-None-Match` or `If-Modified-Since`.',
        headers,
      },
      406: problemOrPage('not_acceptable'),
      429: forwardProblem('rate_limited'),
      ...FORWARD_PROBLEMS,
    },
    ...(isSessionOptional ? { security: [{ session: [] }, {}] } : {}),
  }
  const fluxId = { type: 'string', pattern: FLUX_ID.source }
  return [
    { url: PATHS.flux, schema: { ...common, operationId: 'getFlux', params: parameters({ fluxId }) } },
    {
      url: PATHS.fluxOfAccount,
      schema: {
        ...common,
        operationId: 'getFluxOfAccount',
        params: parameters({ wac: WAC_SCHEMA, fluxId }),
      },
    },
  ]
}
