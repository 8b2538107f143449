import type {
  BodyRules,
  BodySchema,
  Operation,
  ParameterType,
  QueryType,
  UploadRules,
} from '../config/operation.ts'
import { forwardHeaders, parameters, problemOrPage } from '../http/openapi.ts'
import { DATA, ID } from '../paths.ts'
import { MEDIA_TYPE } from './formats.ts'
import { compileOperation, type RoutedOperation } from './operation.ts'
import {
  type AccountRules,
  ANY_TYPE,
  FORWARD_PROBLEMS,
  forwardProblem,
  WAC_SCHEMA,
} from './outgoing-request.ts'

/** An operation of `OPERATIONS_FILE`, below `/data`. */
export function declaredOperation(operation: Operation, accounts: AccountRules): RoutedOperation {
  const { name, method, segments, body, response } = operation
  const pattern = segments.map((part) => ('literal' in part ? `/${part.literal}` : `/:${part.parameter}`))
  return {
    routes: [{ method, url: DATA + pattern.join(''), schema: schemaOf(operation) }],
    schemas: [
      ...(body === null || 'types' in body ? [] : [bodySchemaOf(operation, body, accounts)]),
      ...(response === null ? [] : [{ ...response, $id: `${name}Response` }]),
    ],
    body,
    read: compileOperation(operation, accounts),
  }
}

const UNCHANGED = { type: 'null', description: 'Unchanged since `If-None-Match` or `If-Modified-Since`.' }

/** As declared, and with the account where the page may name it. */
function bodySchemaOf({ name, account }: Operation, { schema }: BodyRules, accounts: AccountRules): object {
  const declared: BodySchema = {
    ...(schema?.type === undefined && { type: 'object' }),
    ...schema,
    $id: `${name}Body`,
  }
  if (account !== 'body') return declared
  const { properties, required = [] } = declared
  return {
    ...declared,
    properties: { wac: WAC_SCHEMA, ...properties },
    required: accounts.default === null ? [...new Set([...required, 'wac'])] : required,
  }
}

function schemaOf(operation: Operation) {
  const { name, method, segments, query, formats, body, response, application } = operation
  const inPath = segments.flatMap((part): [name: string, schema: object][] => {
    if ('literal' in part) return []
    const { parameter } = part
    const schema = parameter === 'wac' ? WAC_SCHEMA : schemaOfParameter(operation.parameters[parameter]!)
    return [[parameter, schema]]
  })
  const json = response === null ? {} : { $ref: `${name}Response#` }
  const content =
    formats === 'any'
      ? { ...ANY_TYPE, ...(response === null ? {} : { [MEDIA_TYPE.JSON]: { schema: json } }) }
      : {
          ...Object.fromEntries(
            formats.map((format) => [
              MEDIA_TYPE[format],
              { schema: format === 'JSON' ? json : { type: 'string' } },
            ]),
          ),
          // A generated client would have the schema or anything, which is anything.
          ...(response === null ? ANY_TYPE : {}),
        }
  return {
    operationId: name,
    tags: ['platform'],
    summary: name,
    params: parameters(Object.fromEntries(inPath)),
    querystring: parameters({
      ...(formats === 'any' ? {} : { format: { type: 'string', enum: formats, examples: [formats[0]] } }),
      ...Object.fromEntries(
        Object.entries(query).map(([parameter, type]) => [parameter, schemaOfQuery(type)]),
      ),
    }),
    headers: forwardHeaders(method === 'GET'),
    ...(body === null ? {} : 'types' in body ? uploadOf(body) : { body: { $ref: `${name}Body#` } }),
    response: {
      ...successes(method, content),
      ...(method === 'GET' ? { 304: UNCHANGED } : {}),
      406: problemOrPage('not_acceptable'),
      ...(method === 'GET' ? { 429: forwardProblem('rate_limited') } : {}),
      ...(body === null
        ? {}
        : { 413: forwardProblem('payload_too_large'), 415: forwardProblem('unsupported_media_type') }),
      ...FORWARD_PROBLEMS,
      ...(body !== null && 'types' in body ? UPLOAD_PROBLEMS : {}),
    },
    ...(application ? { security: [{ session: [] }, {}] } : {}),
  }
}

/** Named one by one: half of the generators of clients cannot read `2XX`. */
function successes(method: Operation['method'], content: object): object {
  const description = 'The response of the resource server, byte for byte.'
  const response = { description, content }
  if (method === 'GET')
    return { 200: response, 206: { description: 'The range that was asked for.', content } }
  const empty = { type: 'null', description: 'The resource server has nothing to say.' }
  return { 200: response, 201: response, 202: response, 204: empty }
}

const UPLOAD_PROBLEMS = {
  408: forwardProblem('request_timeout'),
  411: forwardProblem('length_required'),
  503: forwardProblem(
    'store_unavailable, authorization_server_unavailable, shutting_down; token_refreshed: send it again',
  ),
}

function uploadOf({ types }: UploadRules): object {
  const file = { schema: { type: 'string', contentEncoding: 'binary' } }
  return { body: { content: Object.fromEntries(types.map((type) => [type, file])) } }
}

function schemaOfParameter(type: ParameterType): object {
  if (typeof type === 'object') return { type: 'string', enum: type.enum, examples: [type.enum[0]] }
  return type === 'integer'
    ? { type: 'string', pattern: '^(0|[1-9][0-9]{0,15})$', examples: ['42'] }
    : { type: 'string', pattern: ID.source, examples: ['temperature'] }
}

function schemaOfQuery(type: QueryType): object {
  if (typeof type === 'object' && 'enum' in type)
    return { type: 'string', enum: type.enum, examples: [type.enum[0]] }
  if (typeof type === 'object' && 'list' in type)
    return { type: 'array', maxItems: type.max, items: schemaOfQuery(type.list) }
  if (typeof type === 'object') return integerWithin(...type.integer)
  switch (type) {
    case 'integer':
      return integerWithin(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)
    case 'number':
      return { type: 'number', description: 'At most 15 digits on each side of the point.', examples: [0.5] }
    case 'boolean':
      return { type: 'boolean', examples: [true] }
    case 'text':
      return { type: 'string', maxLength: 512, pattern: NO_CONTROLS, examples: ['pump'] }
  }
}

const NO_CONTROLS = '^[^\\x00-\\x1f\\x7f-\\x9f]*$'

function integerWithin(minimum: number, maximum: number): object {
  const example = Math.min(Math.max(1, minimum), maximum)
  return { type: 'integer', format: 'int64', minimum, maximum, examples: [example] }
}
