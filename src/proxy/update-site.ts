import type { FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import { PATHS, WAC } from '../paths.ts'
import type { Operation } from './operation.ts'
import type { WacOptions } from './path-parts.ts'
import { siteIdOf, wacOf } from './path-parts.ts'
import { queryPieces } from './query-pieces.ts'

/** Of a request, what is known before its body is read. */
export interface SiteTarget {
  /** null on the route that names them in the body. */
  path: { siteId: number; wac: string } | null
  /** The query to send, with its question mark, or ''. */
  query: string
  jsonp: boolean
}

/** UpdateSite's members (service document, section 4.3); those of the path may be repeated, if they agree. */
export interface SiteBody {
  wType?: string
  siteID?: number
  wac?: string
  name?: string
  description?: string
  code?: string
  parentInfrastructureID?: number | null
}

const SAFE_INTEGER = { type: 'integer', minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER }

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
      ...SAFE_INTEGER,
      type: ['integer', 'null'],
      description: 'null: no parent; absent: unchanged.',
    },
  },
} as const

const CALLBACK_NAME = /^[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*$/

/** Path and query of `PUT /site/…` and `POST /site`; throws what is wrong with them. */
export function readSiteTarget(request: FastifyRequest, wacOptions: WacOptions): SiteTarget {
  const { wac, siteId: given } = request.params as { wac?: string; siteId?: string }
  const site = given === undefined ? null : siteIdOf(given)
  const path = site === null ? null : { siteId: site.siteId, wac: wacOf(wac, wacOptions) }
  let format = site?.json ?? request.routeOptions.url === PATHS.siteInBodyAsJson
  let formatNamed = false
  let callback: string | null = null
  for (const { name, value } of queryPieces(request.url)) {
    if (name === 'format' && !formatNamed && /^json$/i.test(value)) format = formatNamed = true
    else if (name === 'format') throw problem('invalid_request', 'The parameter format must be json, once.')
    else if (name === 'callback' && callback === null) callback = callbackName(value)
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

/** The call to make, its body written from the members that were checked. */
export function toUpdateSite(target: SiteTarget, body: SiteBody, wacOptions: WacOptions): Operation {
  const siteId = target.path?.siteId ?? body.siteID
  if (siteId === undefined) throw problem('invalid_request', 'The member siteID is missing.')
  if (body.siteID !== undefined && body.siteID !== siteId) {
    throw problem('invalid_request', 'The member siteID does not agree with the path.')
  }
  const wac = target.path?.wac ?? wacOf(body.wac, wacOptions)
  if (body.wac !== undefined && body.wac !== wac) {
    throw problem('invalid_request', 'The member wac does not agree with the path.')
  }
  const path = target.path === null ? '/json/reply/UpdateSite' : `/${wac}/Infrastructure/Site/${siteId}`
  return {
    name: 'UpdateSite',
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

function callbackName(value: string): string {
  if (value.length <= 64 && CALLBACK_NAME.test(value)) return value
  throw problem(
    'invalid_request',
    'The parameter callback must be a dotted identifier of at most 64 characters.',
  )
}
