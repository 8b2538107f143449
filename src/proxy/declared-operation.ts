import type { BodyRules, BodySchema, Operation, ParameterType, QueryType } from '../config/operation.ts'
import { parameters, problemOrPage, requestHeaders } from '../http/openapi.ts'
import { DATA, ID } from '../paths.ts'
import { MEDIA_TYPE } from './formats.ts'
import { compileOperation, type RoutedOperation } from './operation.ts'
import { type AccountRules, FORWARD_PROBLEMS, forwardProblem, WAC_SCHEMA } from './outgoing-request.ts'

/** An operation of `OPERATIONS_FILE`, below `/data`. */
export function declaredOperation(operation: Operation, accounts: AccountRules): RoutedOperation {
  const { method, segments, body } = operation
  const pattern = segments.map((part) => ('literal' in part ? `/${part.literal}` : `/:${part.parameter}`))
  return {
    routes: [{ method, url: DATA + pattern.join(''), schema: schemaOf(operation) }],
    schemas: body === null ? [] : [bodySchemaOf(operation, body, accounts)],
    takesBody: body !== null,
    read: compileOperation(operation, accounts),
  }
}

const UNCHANGED = { type: 'null', description: 'Unchanged since `If-None-Match` or `If-Modified-Since`.' }

/** As declared, and with the account where the page may name it. */
function bodySchemaOf({ name, account }: Operation, { schema }: BodyRules, accounts: AccountRules): object {
  const declared: BodySchema = { type: 'object', ...schema, $id: `${name}Body` }
  if (account !== 'body') return declared
  const { properties, required = [] } = declared
  return {
    ...declared,
    properties: { wac: WAC_SCHEMA, ...properties },
    required: accounts.default === null ? [...new Set([...required, 'wac'])] : required,
  }
}

function schemaOf(operation: Operation) {
  const { name, method, segments, query, formats, body, application } = operation
  const inPath = segments.flatMap((part): [name: string, schema: object][] => {
    if ('literal' in part) return []
    const { parameter } = part
    const schema = parameter === 'wac' ? WAC_SCHEMA : schemaOfParameter(operation.parameters[parameter]!)
    return [[parameter, schema]]
  })
  const content = {
    ...Object.fromEntries(
      formats.map((format) => [MEDIA_TYPE[format], { schema: format === 'JSON' ? {} : { type: 'string' } }]),
    ),
    '*/*': { schema: { type: 'string', description: 'Another type that the resource server chose.' } },
  }
  return {
    operationId: name,
    tags: ['platform'],
    summary: name,
    params: parameters(Object.fromEntries(inPath)),
    querystring: parameters({
      format: { type: 'string', enum: formats },
      ...Object.fromEntries(
        Object.entries(query).map(([parameter, type]) => [parameter, schemaOfQuery(type)]),
      ),
    }),
    headers:
      method === 'GET' ? requestHeaders('If-None-Match', 'If-Modified-Since', 'Range') : requestHeaders(),
    ...(body === null ? {} : { body: { $ref: `${name}Body#` } }),
    response: {
      '2XX': { description: 'The response of the resource server, byte for byte.', content },
      ...(method === 'GET' ? { 304: UNCHANGED } : {}),
      406: problemOrPage('not_acceptable'),
      ...(method === 'GET' ? { 429: forwardProblem('rate_limited') } : {}),
      ...(body === null
        ? {}
        : { 413: forwardProblem('payload_too_large'), 415: forwardProblem('unsupported_media_type') }),
      ...FORWARD_PROBLEMS,
    },
    ...(application ? { security: [{ session: [] }, {}] } : {}),
  }
}

function schemaOfParameter(type: ParameterType): object {
  if (typeof type === 'object') return { type: 'string', enum: type.enum }
  return { type: 'string', pattern: type === 'integer' ? '^(0|[1-9][0-9]{0,15})$' : ID.source }
}

function schemaOfQuery(type: QueryType): object {
  if (type === 'text') return { type: 'string', maxLength: 512 }
  if (typeof type === 'string') return { type }
  if ('enum' in type) return { type: 'string', enum: type.enum }
  return { type: 'integer', minimum: type.integer[0], maximum: type.integer[1] }
}
