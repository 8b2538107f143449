import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import {
  CSRF_PARAMETER,
  headersNamed,
  inPath,
  inQuery,
  type OpenApiFragment,
  problemOrPage,
  withHead,
} from '../http/openapi.ts'
import { FLUX_ID, PATHS } from '../paths.ts'
import {
  type AccountRules,
  FORWARD_PROBLEMS,
  FORWARD_SCHEMAS,
  forwardProblem,
  type OutgoingRequest,
  queryParameters,
  readWac,
  WAC_PARAMETER,
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

/** GetFlux (service document, section 4.2) from a browser's request. Throws the problem with the request. */
export function readGetFlux(request: FastifyRequest, accounts: AccountRules): OutgoingRequest {
  const params = request.params as { wac?: string; fluxId: string }
  const fluxId = readFluxId(params.fluxId)
  const wac = readWac(params.wac, accounts)
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
    else format = namedFormat(value)
  }
  format ??= acceptedFormat(request.headers)
  if (format === null) throw problem('not_acceptable', 'Flux comes as JSON, XML, CSV or JSV.')
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

/** The formats in which the resource server returns a Flux. */
type Format = 'JSON' | 'XML' | 'CSV' | 'JSV'

/** The media type that names a format to the resource server, in `Accept` and, as documented, in `Content-Type`. */
const MEDIA_TYPE: Record<Format, string> = {
  JSON: 'application/json',
  XML: 'application/xml',
  CSV: 'text/csv',
  JSV: 'text/jsv',
}

// The order decides between types of equal weight. The negotiator package takes the order of the header
// instead, and needs the rule for HTML on top.
const ACCEPTED: readonly (readonly [type: string, format: Format])[] = [
  ['application/json', 'JSON'],
  ['application/xml', 'XML'],
  ['text/xml', 'XML'],
  ['text/csv', 'CSV'],
  ['text/jsv', 'JSV'],
  ['application/jsv', 'JSV'],
]

/** The format that a `format` parameter names, in any case. Throws `invalid_request`. */
function namedFormat(value: string): Format {
  const name = value.toUpperCase()
  if (name === 'JSON' || name === 'XML' || name === 'CSV' || name === 'JSV') return name
  throw problem('invalid_request', 'The parameter format must be JSON, XML, CSV or JSV.')
}

/**
 * The best format for the `Accept` header (RFC 9110 section 12.5.1), null if it accepts none. A header
 * that names HTML comes from the address bar, so every format is acceptable, as without the header. Then
 * `Content-Type` names the format (service document, section 4.2).
 */
function acceptedFormat({ accept, 'content-type': contentType }: IncomingHttpHeaders): Format | null {
  if (accept === undefined || accept === '*/*') return typedFormat(contentType)
  if (accept === 'application/json') return 'JSON'
  const ranges = accept.split(',').map(parseRange)
  const [first] = ranges
  const isAny = ranges.length === 1 && (first?.type === '' || (first?.type === '*/*' && first.q > 0))
  if (isAny || ranges.some(({ type }) => type === 'text/html')) return typedFormat(contentType)
  let best: { format: Format; q: number } | null = null
  for (const [type, format] of ACCEPTED) {
    const q = quality(type, ranges)
    if (q > 0 && (best === null || q > best.q)) best = { format, q }
  }
  return best?.format ?? null
}

function typedFormat(contentType: string | undefined): Format {
  if (contentType === undefined) return 'JSON'
  const essence = parseRange(contentType).type
  return ACCEPTED.find(([type]) => type === essence)?.[1] ?? 'JSON'
}

interface Range {
  type: string
  q: number
}

function parseRange(text: string): Range {
  const [type = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase())
  const weight = parameters.find((parameter) => parameter.startsWith('q='))
  const q = weight === undefined ? 1 : Number(weight.slice(2))
  return { type, q: q >= 0 && q <= 1 ? q : 0 }
}

/** The most specific matching range decides, whatever the others say. */
function quality(type: string, ranges: Range[]): number {
  const group = `${type.slice(0, type.indexOf('/'))}/*`
  for (const pattern of [type, group, '*/*']) {
    const range = ranges.find((candidate) => candidate.type === pattern)
    if (range !== undefined) return range.q
  }
  return 0
}

/** GetFlux in the OpenAPI document. `isSessionOptional`: the application reads without one. */
export function getFluxOpenApi(isSessionOptional: boolean): OpenApiFragment {
  const security = isSessionOptional ? { security: [{ session: [] }, {}] } : {}
  const content = {
    ...Object.fromEntries(
      Object.values(MEDIA_TYPE).map((type) => [
        type,
        { schema: type === 'application/json' ? { $ref: '#/components/schemas/Flux' } : { type: 'string' } },
      ]),
    ),
    '*/*': { schema: { type: 'string', description: 'Another type that the resource server chose.' } },
  }
  const headers = headersNamed('ETag', 'Last-Modified')
  const operation = (operationId: string, parameters: object[]) =>
    withHead({
      operationId,
      tags: ['platform'],
      summary: 'GetFlux',
      parameters: [
        ...parameters,
        inQuery('format', {
          type: 'string',
          enum: Object.keys(MEDIA_TYPE),
          description: 'In any case. Default: by `Accept`, else by `Content-Type`, else JSON.',
        }),
        {
          ...inQuery('parameters', {
            type: 'object',
            additionalProperties: { type: ['string', 'number', 'boolean'] },
            description: `Any other parameter, passed on under its own name; refused are ${[...REJECTED].join(', ')}.`,
          }),
          style: 'form',
          explode: true,
        },
        ...['If-None-Match', 'If-Modified-Since', 'Range'].map((name) => ({
          name,
          in: 'header',
          schema: { type: 'string' },
        })),
        CSRF_PARAMETER,
      ],
      responses: {
        200: { description: 'The response of the resource server, byte for byte.', headers, content },
        206: { description: 'The range that was asked for.', headers, content },
        304: { description: 'Unchanged since `If-None-Match` or `If-Modified-Since`.', headers },
        406: problemOrPage('not_acceptable'),
        429: forwardProblem('rate_limited'),
        ...FORWARD_PROBLEMS,
      },
      ...security,
    })
  const fluxId = inPath('fluxId', FLUX_ID.source)
  return {
    paths: {
      [PATHS.flux]: operation('getFlux', [fluxId]),
      [PATHS.fluxOfAccount]: operation('getFluxOfAccount', [WAC_PARAMETER, fluxId]),
    },
    schemas: {
      Flux: { description: "The resource server's document does not show the body of a Flux." },
      ...FORWARD_SCHEMAS,
    },
  }
}
