import type { FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import { inPath, inQuery, jsonBody, type OpenApiFragment, problemResponse } from '../http/openapi.ts'
import { PATHS, WAC } from '../paths.ts'
import {
  type AccountRules,
  FORWARD_PROBLEMS,
  type OutgoingRequest,
  queryParameters,
  readWac,
  WAC_PARAMETER,
} from './request.ts'

/** The part of an UpdateSite request that is known before its body is read. */
export interface SiteTarget {
  /** null on the route that names them in the body. */
  path: { siteId: number; wac: string } | null
  /** The query to send, with its question mark, or ''. */
  query: string
  jsonp: boolean
}

/** The members of UpdateSite (service document, section 4.3). The path's may be repeated, if they agree. */
export interface SiteBody {
  wType?: string
  siteID?: number
  wac?: string
  name?: string
  description?: string
  code?: string
  parentInfrastructureID?: number | null
}

/** JSON schema of `SiteBody`: the routes validate with it, and OpenAPI shows it. */
export const SITE_BODY_SCHEMA = {
  type: 'object',
  additionalProperties: false,
  properties: {
    wType: { const: 'UpdateSite' },
    siteID: { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
    wac: { type: 'string', pattern: WAC.source },
    name: { type: 'string' },
    description: { type: 'string' },
    code: { type: 'string' },
    parentInfrastructureID: {
      type: ['integer', 'null'],
      minimum: Number.MIN_SAFE_INTEGER,
      maximum: Number.MAX_SAFE_INTEGER,
      description: 'null: no parent; absent: unchanged.',
    },
  },
} as const

const CALLBACK_NAME = /^[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*$/

/** Path and query of `PUT /site/…` and `POST /site`. Throws the problem with them. */
export function readSiteTarget(request: FastifyRequest, accounts: AccountRules): SiteTarget {
  const { wac, siteId: given } = request.params as { wac?: string; siteId?: string }
  const site = given === undefined ? null : readSiteId(given)
  const path = site === null ? null : { siteId: site.siteId, wac: readWac(wac, accounts) }
  let format = site?.json ?? request.routeOptions.url === PATHS.siteInBodyAsJson
  let formatNamed = false
  let callback: string | null = null
  for (const { name, value } of queryParameters(request.url)) {
    if (name === 'format' && !formatNamed && /^json$/i.test(value)) format = formatNamed = true
    else if (name === 'format') throw problem('invalid_request', 'The parameter format must be json, once.')
    else if (name === 'callback' && callback === null) callback = readCallback(value)
    else
      throw problem(
        'invalid_request',
        `The parameter ${name.slice(0, 64)} is not known here, or is repeated.`,
      )
  }
  const query = [format ? 'format=json' : '', callback === null ? '' : `callback=${callback}`]
    .filter(Boolean)
    .join('&')
  return { path, query: query === '' ? '' : `?${query}`, jsonp: callback !== null }
}

/** The request to send, with a body of the validated members. Throws where body and path disagree. */
export function toUpdateSite(target: SiteTarget, body: SiteBody, accounts: AccountRules): OutgoingRequest {
  const siteId = target.path?.siteId ?? body.siteID
  if (siteId === undefined) throw problem('invalid_request', 'The member siteID is missing.')
  if (body.siteID !== undefined && body.siteID !== siteId) {
    throw problem('invalid_request', 'The member siteID does not agree with the path.')
  }
  const wac = target.path?.wac ?? readWac(body.wac, accounts)
  if (body.wac !== undefined && body.wac !== wac) {
    throw problem('invalid_request', 'The member wac does not agree with the path.')
  }
  const path = target.path === null ? '/json/reply/UpdateSite' : `/${wac}/Infrastructure/Site/${siteId}`
  return {
    operation: 'UpdateSite',
    wac,
    fluxId: null,
    method: target.path === null ? 'POST' : 'PUT',
    path: path + target.query,
    accept: 'application/json',
    contentType: 'application/json',
    body: Buffer.from(JSON.stringify({ ...body, wType: 'UpdateSite', siteID: siteId, wac })),
    jsonp: target.jsonp,
  }
}

/** UpdateSite in the OpenAPI document. */
export function updateSiteOpenApi(): OpenApiFragment {
  const operation = (parameters: object[]) => ({
    summary: 'UpdateSite',
    parameters: [
      ...parameters,
      inQuery('format', { type: 'string', enum: ['json'] }),
      inQuery('callback', { type: 'string', maxLength: 64, description: 'Wraps the response as JSONP.' }),
    ],
    requestBody: jsonBody('SiteUpdate'),
    responses: {
      200: { description: 'The updated Site, byte for byte.', content: { 'application/json': {} } },
      413: problemResponse('payload_too_large'),
      415: problemResponse('unsupported_media_type'),
      ...FORWARD_PROBLEMS,
    },
  })
  const siteId = inPath('siteId', '^[0-9]{1,16}(\\.json)?$')
  return {
    paths: {
      [PATHS.site]: { put: operation([siteId]) },
      [PATHS.siteOfAccount]: { put: operation([WAC_PARAMETER, siteId]) },
      [PATHS.siteInBody]: { post: operation([]) },
      [PATHS.siteInBodyAsJson]: { post: operation([]) },
    },
    schemas: { SiteUpdate: SITE_BODY_SCHEMA },
  }
}

/** A Site's id, and whether the path asks for JSON by its suffix (service document, section 4.3). */
function readSiteId(given: string): { siteId: number; json: boolean } {
  const json = given.endsWith('.json')
  const digits = json ? given.slice(0, -'.json'.length) : given
  const siteId = Number(digits)
  if (!/^\d{1,16}$/.test(digits) || !Number.isSafeInteger(siteId)) {
    throw problem('invalid_request', `siteID must be a whole number from 0 to ${Number.MAX_SAFE_INTEGER}.`)
  }
  return { siteId, json }
}

function readCallback(value: string): string {
  if (value.length <= 64 && CALLBACK_NAME.test(value)) return value
  throw problem(
    'invalid_request',
    'The parameter callback must be a dotted identifier of at most 64 characters.',
  )
}
