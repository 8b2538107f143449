import type { FastifyRequest } from 'fastify'
import { SITE_UPDATE, SITE_UPDATE_WITH_TARGET, UPDATE_SITE, UPDATE_SITE_IN_BODY } from '../config/built-in.ts'
import { problem } from '../errors.ts'
import { forwardHeaders, parameters } from '../http/openapi.ts'
import { parameterAt } from '../http/problems.ts'
import { PATHS } from '../paths.ts'
import { compileOperation, type Params, type Query, type RoutedOperation } from './operation.ts'
import {
  type AccountRules,
  FORWARD_PROBLEMS,
  forwardProblem,
  queryParameters,
  WAC_SCHEMA,
} from './outgoing-request.ts'

const JSON_SUFFIX = '.json'

/**
 * UpdateSite by its two routes: the Site is named in the path, or in the body. `tokenIn`: a token in the query has the format
 * beside it (service document, section 5.6).
 */
export function updateSite(accounts: AccountRules, tokenIn: 'header' | 'query'): RoutedOperation[] {
  const readQuery = (request: FastifyRequest<{ Params: Params }>): Query =>
    readSiteQuery(request, tokenIn === 'query')
  const readInBody = compileOperation(UPDATE_SITE_IN_BODY, accounts, { readQuery })
  return [
    {
      routes: ROUTES,
      schemas: [SITE, documented('SiteUpdate', SITE_UPDATE)],
      body: UPDATE_SITE.body,
      read: compileOperation(UPDATE_SITE, accounts, { readParams, readQuery }),
    },
    {
      routes: ROUTES_IN_BODY,
      schemas: [documented('SiteUpdateWithTarget', ...targetIn(accounts))],
      body: UPDATE_SITE_IN_BODY.body,
      read(request) {
        const outgoing = readInBody(request)
        // The schema has found it.
        const { siteID } = request.body as { siteID: number }
        return { ...outgoing, targetId: String(siteID) }
      },
    },
  ]
}

function readParams({ siteId = '', ...rest }: Params): Params {
  const digits = siteId.endsWith(JSON_SUFFIX) ? siteId.slice(0, -JSON_SUFFIX.length) : siteId
  // Leading zeros are not sent.
  return { ...rest, siteID: /^\d{1,16}$/.test(digits) ? String(Number(digits)) : digits }
}

/** JSON is asked for by the suffix of the path or by `format`, and wrapped by `callback`. */
function readSiteQuery(
  { url, params, routeOptions }: FastifyRequest<{ Params: Params }>,
  alwaysNamesFormat: boolean,
): Query {
  const { siteId: lastSegment = routeOptions.url ?? '' } = params
  let asJson = alwaysNamesFormat || lastSegment.endsWith(JSON_SUFFIX)
  let formatNamed = false
  let callback: string | null = null
  for (const [position, { name, value }] of queryParameters(url).entries()) {
    if (name === 'format' && !formatNamed && /^json$/i.test(value)) asJson = formatNamed = true
    else if (name === 'format') throw problem('invalid_request', 'The parameter format must be json, once.')
    else if (name === 'callback' && callback === null) callback = readCallback(value)
    else throw problem('invalid_request', `${parameterAt(position, name)} is not known here, or is repeated.`)
  }
  const query = [asJson ? 'format=json' : '', callback === null ? '' : `callback=${callback}`]
    .filter(Boolean)
    .join('&')
  return { format: 'JSON', query, jsonp: callback !== null }
}

const CALLBACK_NAME = /^[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*$/

function readCallback(value: string): string {
  if (value.length <= 64 && CALLBACK_NAME.test(value)) return value
  throw problem(
    'invalid_request',
    'The parameter callback must be a dotted identifier of at most 64 characters.',
  )
}

/** The schema of a body that names the Site, and the account where the server has none, with an example of these members. */
function targetIn({ default: wac }: AccountRules): [schema: typeof SITE_UPDATE, target: object] {
  if (wac !== null) return [SITE_UPDATE_WITH_TARGET, { siteID: 42 }]
  const schema = { ...SITE_UPDATE, required: [...SITE_UPDATE_WITH_TARGET.required, 'wac'] }
  return [schema, { siteID: 42, wac: WAC_SCHEMA.examples[0] }]
}

/** The schema of a body with what is checked beside it, and an example. */
function documented($id: string, schema: typeof SITE_UPDATE, target: object = {}): object {
  const { wType, siteID, wac, parentInfrastructureID, ...texts } = schema.properties
  return {
    $id,
    ...schema,
    properties: {
      wType,
      siteID: { ...siteID, format: 'int64', description: 'If the path names the Site: the same one.' },
      wac: {
        ...wac,
        description: 'If the path names the account: the same one. Default: that of the server.',
      },
      ...texts,
      parentInfrastructureID: { ...parentInfrastructureID, format: 'int64' },
    },
    examples: [
      {
        ...target,
        name: 'Plant',
        description: 'Laboratory',
        code: 'LAB-42',
        parentInfrastructureID: null,
      },
    ],
  }
}

const SEVEN_DIGITS = {
  type: 'string',
  description: 'UTC in ISO 8601, with seven digits of a second, which `Date` does not keep.',
}

/** A Site (service document, section 2.1). */
const SITE = {
  $id: 'Site',
  type: 'object',
  required: ['wType', 'id', 'name', 'description', 'code', 'creationDate', 'updateDate', 'picture'],
  properties: {
    wType: { type: 'string', enum: ['Site'] },
    id: { type: 'integer', format: 'int64' },
    name: { type: 'string' },
    description: { type: 'string' },
    code: { type: 'string' },
    parentInfrastructureID: {
      type: ['integer', 'null'],
      format: 'int64',
      description: 'Empty without a parent; whether it is null or absent then is not documented.',
    },
    creationDate: SEVEN_DIGITS,
    updateDate: SEVEN_DIGITS,
    picture: { type: 'string', description: '32 hexadecimal digits.' },
  },
} as const

const COMMON_SCHEMA = {
  tags: ['platform'],
  summary: 'UpdateSite',
  querystring: parameters({
    format: { type: 'string', enum: ['json'], examples: ['json'] },
    callback: {
      type: 'string',
      maxLength: 64,
      pattern: CALLBACK_NAME.source,
      description: 'Wraps the response as JSONP.',
      examples: ['receive'],
    },
  }),
  headers: forwardHeaders(false),
  response: {
    200: {
      description:
        'The updated Site, byte for byte; with `callback` as a script that calls the function with it.',
      content: {
        'application/json': { schema: { $ref: 'Site#' } },
        'text/javascript': { schema: { type: 'string', description: 'With `callback`.' } },
      },
    },
    413: forwardProblem('payload_too_large'),
    415: forwardProblem('unsupported_media_type'),
    ...FORWARD_PROBLEMS,
  },
}

const siteId = { type: 'string', pattern: '^[0-9]{1,16}(\\.json)?$', examples: ['42'] }
const ofPath = { ...COMMON_SCHEMA, body: { $ref: 'SiteUpdate#' } }
const inBody = { ...COMMON_SCHEMA, body: { $ref: 'SiteUpdateWithTarget#' } }

const ROUTES: RoutedOperation['routes'] = [
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
]

const ROUTES_IN_BODY: RoutedOperation['routes'] = [
  { method: 'POST', url: PATHS.siteInBody, schema: { ...inBody, operationId: 'updateSiteInBody' } },
  {
    method: 'POST',
    url: PATHS.siteInBodyAsJson,
    schema: { ...inBody, operationId: 'updateSiteInBodyAsJson' },
    config: { mayBeFile: true },
  },
]
