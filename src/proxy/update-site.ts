import type { FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import { parameters, requestHeaders } from '../http/openapi.ts'
import { parameterAt } from '../http/problems.ts'
import { PATHS, WAC } from '../paths.ts'
import {
  type AccountRules,
  FORWARD_PROBLEMS,
  forwardProblem,
  type OutgoingRequest,
  queryParameters,
  readWac,
  WAC_SCHEMA,
} from './outgoing-request.ts'

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
  name?: string | null
  description?: string | null
  code?: string | null
  /** Left empty without a parent: null or ''. */
  parentInfrastructureID?: number | null | ''
}

/** JSON schema of `SiteBody`. */
export const SITE_UPDATE = {
  $id: 'SiteUpdate',
  type: 'object',
  description: 'What the platform does with a member that is absent is not documented: send all of them.',
  additionalProperties: false,
  properties: {
    wType: { const: 'UpdateSite' },
    siteID: { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
    wac: { type: 'string', pattern: WAC.source },
    name: { type: ['string', 'null'] },
    description: { type: ['string', 'null'] },
    code: { type: ['string', 'null'] },
    parentInfrastructureID: {
      type: ['integer', 'null', 'string'],
      minimum: Number.MIN_SAFE_INTEGER,
      maximum: Number.MAX_SAFE_INTEGER,
      maxLength: 0,
      description: 'null or an empty text: no parent.',
    },
  },
} as const

const CALLBACK_NAME = /^[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*$/

export interface SiteParams {
  wac?: string
  siteId?: string
}

/** Path and query of `PUT /site/…` and `POST /site`. Throws the problem with them. */
export function readSiteTarget(
  request: FastifyRequest<{ Params: SiteParams }>,
  accounts: AccountRules,
): SiteTarget {
  const { wac, siteId: given } = request.params
  const site = given === undefined ? null : readSiteId(given)
  const path = site === null ? null : { siteId: site.siteId, wac: readWac(wac, accounts) }
  let asJson = site?.asJson ?? request.routeOptions.url === PATHS.siteInBodyAsJson
  let formatNamed = false
  let callback: string | null = null
  for (const [position, { name, value }] of queryParameters(request.url).entries()) {
    if (name === 'format' && !formatNamed && /^json$/i.test(value)) asJson = formatNamed = true
    else if (name === 'format') throw problem('invalid_request', 'The parameter format must be json, once.')
    else if (name === 'callback' && callback === null) callback = readCallback(value)
    else throw problem('invalid_request', `${parameterAt(position, name)} is not known here, or is repeated.`)
  }
  const query = [asJson ? 'format=json' : '', callback === null ? '' : `callback=${callback}`]
    .filter(Boolean)
    .join('&')
  return { path, query: query === '' ? '' : `?${query}`, jsonp: callback !== null }
}

/** The request to send, with a body of the validated members. Throws if body and path disagree. */
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
    targetId: String(siteId),
    method: target.path === null ? 'POST' : 'PUT',
    path: path + target.query,
    accept: 'application/json',
    contentType: 'application/json',
    body: Buffer.from(JSON.stringify({ ...body, wType: 'UpdateSite', siteID: siteId, wac })),
    jsonp: target.jsonp,
  }
}

/** A Site's id, and whether the path asks for JSON by its suffix (service document, section 4.3). */
function readSiteId(given: string): { siteId: number; asJson: boolean } {
  const asJson = given.endsWith('.json')
  const digits = asJson ? given.slice(0, -'.json'.length) : given
  const siteId = Number(digits)
  if (!/^\d{1,16}$/.test(digits) || !Number.isSafeInteger(siteId)) {
    throw problem('invalid_request', `siteID must be a whole number from 0 to ${Number.MAX_SAFE_INTEGER}.`)
  }
  return { siteId, asJson }
}

function readCallback(value: string): string {
  if (value.length <= 64 && CALLBACK_NAME.test(value)) return value
  throw problem(
    'invalid_request',
    'The parameter callback must be a dotted identifier of at most 64 characters.',
  )
}

const SEVEN_DIGITS = {
  type: 'string',
  description: 'UTC in ISO 8601, with seven digits of a second, which `Date` does not keep.',
}

/** A Site (service document, section 2.1). */
const SITE = {
  $id: 'Site',
  type: 'object',
  required: ['wType', 'id', 'name', 'description', 'code', 'creationDate', 'updateDate'],
  properties: {
    wType: { const: 'Site' },
    id: { type: 'integer' },
    name: { type: 'string' },
    description: { type: 'string' },
    code: { type: 'string' },
    parentInfrastructureID: { type: ['integer', 'null'], description: 'null or absent: no parent.' },
    creationDate: SEVEN_DIGITS,
    updateDate: SEVEN_DIGITS,
    picture: { type: 'string', description: '32 hexadecimal digits.' },
  },
} as const

/** What the schemas of the routes refer to. */
export const SITE_SCHEMAS = [
  SITE,
  SITE_UPDATE,
  { ...SITE_UPDATE, $id: 'SiteUpdateWithTarget', required: ['siteID'] },
]

const COMMON_SCHEMA = {
  tags: ['platform'],
  summary: 'UpdateSite',
  querystring: parameters({
    format: { type: 'string', enum: ['json'] },
    callback: {
      type: 'string',
      maxLength: 64,
      pattern: CALLBACK_NAME.source,
      description: 'Wraps the response as JSONP.',
    },
  }),
  headers: requestHeaders(),
  response: {
    200: {
      description:
        'The updated Site, byte for byte; with `callback` as a script that calls the function with it.',
      content: {
        'application/json': { schema: { $ref: 'Site#' } },
        // With `callback`: a script that calls the function with the Site.
        'text/javascript': { schema: { $ref: 'Site#' } },
      },
    },
    413: forwardProblem('payload_too_large'),
    415: forwardProblem('unsupported_media_type'),
    ...FORWARD_PROBLEMS,
  },
}

const siteId = { type: 'string', pattern: '^[0-9]{1,16}(\\.json)?$' }
const ofPath = { ...COMMON_SCHEMA, body: { $ref: 'SiteUpdate#' } }
const inBody = { ...COMMON_SCHEMA, body: { $ref: 'SiteUpdateWithTarget#' } }

/** The routes of UpdateSite. */
export const UPDATE_SITE_ROUTES = [
  {
    method: 'PUT',
    url: PATHS.site,
    schema: { ...ofPath, operationId: 'updateSite', params: parameters({ siteId }) },
  },
  {
    method: 'PUT',
    url: PATHS.siteOfAccount,
    schema: {
      ...ofPath,
      operationId: 'updateSiteOfAccount',
      params: parameters({ wac: WAC_SCHEMA, siteId }),
    },
  },
  { method: 'POST', url: PATHS.siteInBody, schema: { ...inBody, operationId: 'updateSiteInBody' } },
  {
    method: 'POST',
    url: PATHS.siteInBodyAsJson,
    schema: { ...inBody, operationId: 'updateSiteInBodyAsJson' },
    config: { mayBeFile: true },
  },
]
