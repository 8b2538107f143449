import {
  type BodyRules,
  type BodySchema,
  type Operation,
  type ParameterType,
  type QueryType,
  sameName,
  sourcesOf,
  type UploadRules,
} from '../config/operation.ts'
import { forwardHeaders, parameters, problemOrPage } from '../http/openapi.ts'
import { DATA, ID } from '../paths.ts'
import { componentsOf } from './documented-schema.ts'
import { exampleOf } from './example.ts'
import { MEDIA_TYPE } from './formats.ts'
import { compileOperation, type RoutedOperation } from './operation.ts'
import {
  type AccountRules,
  ANY_TYPE,
  FORWARD_PROBLEMS,
  forwardProblem,
  NO_CONTROLS,
  WAC_SCHEMA,
} from './outgoing-request.ts'

/** The operations of `OPERATIONS_FILE`, below `/data`. */
export function declaredOperations(
  operations: readonly Operation[],
  accounts: AccountRules,
): RoutedOperation[] {
  return operations.map((operation) => {
    const first = operations.find((other) => shapeOf(urlOf(other)) === shapeOf(urlOf(operation)))
    return declaredOperation(operation, accounts, first!)
  })
}

/** `first` of those with this path: in the OpenAPI document a path has one set of names for its parameters. */
function declaredOperation(operation: Operation, accounts: AccountRules, first: Operation): RoutedOperation {
  const { name, method, body, response } = operation
  const components = {
    ...(body === null || 'types' in body
      ? {}
      : componentsOf(`${name}Body`, bodySchemaOf(operation, body, accounts))),
    ...(response === null ? {} : componentsOf(`${name}Response`, response)),
  }
  const config = { documentedUrl: urlOf(first), documentedComponents: components }
  return {
    routes: [{ method, url: urlOf(operation), schema: schemaOf(operation, first), config }],
    // What they say is in the components alone: the plugin of the document would take each member `$ref` for a reference.
    schemas: Object.keys(components).map(($id) => ({ $id })),
    body,
    read: compileOperation(operation, accounts),
  }
}

/** The route pattern of an operation. */
function urlOf({ segments }: Operation): string {
  return (
    DATA + segments.map((part) => ('literal' in part ? `/${part.literal}` : `/:${part.parameter}`)).join('')
  )
}

function shapeOf(url: string): string {
  return url.replace(/:\w+/g, ':')
}

const UNCHANGED = { type: 'null', description: 'Unchanged since `If-None-Match` or `If-Modified-Since`.' }

const NUMBERS = 'Integers within ±(2^53-1), other numbers of at most 15 significant digits.'

const REPEATS = 'May repeat what the server fills in or the address names, once and with the same value:'

/** As declared, with the account where the page may name it, without the demand for what the server fills in, and with an example. */
function bodySchemaOf(operation: Operation, body: BodyRules, accounts: AccountRules): object {
  const { account } = operation
  const { schema } = body
  const { required = [], properties, ...rest }: BodySchema = schema ?? {}
  const needed = neededIn(body)
  const ofAccount = accountMember(operation)
  if (account === 'body' && accounts.default === null && !needed.includes('wac')) needed.push('wac')
  const declared = {
    ...(rest.type === undefined && { type: 'object' }),
    ...rest,
    ...(required.length + needed.length > 0 && { required: needed }),
    ...((properties ?? account === 'body') && { properties: { ...ofAccount, ...properties } }),
  }
  const example = exampleOfBody(operation, body)
  const filled = schema?.type === 'array' ? [] : filledIn(operation, body)
  return {
    ...(example !== undefined && { examples: [example] }),
    ...declared,
    description: [
      rest.description ?? NUMBERS,
      ...(filled.length > 0 ? [`${REPEATS} ${filled.join(', ')}.`] : []),
    ].join(' '),
  }
}

/**
 * A body that the operation takes, without what the server fills in; undefined where the schema has keywords that
 * `exampleOf` does not follow, and no `examples`.
 */
export function exampleOfBody(operation: Operation, body: BodyRules): unknown {
  const { type = 'object', properties = {}, ...rest }: BodySchema = body.schema ?? {}
  const filled = filledIn(operation, body).map(sameName)
  const sent = Object.entries({ ...accountMember(operation), ...properties }).filter(
    ([member]) => !filled.includes(sameName(member)),
  )
  return exampleOf({ ...rest, type, required: neededIn(body), properties: Object.fromEntries(sent) })
}

function accountMember({ account }: Operation) {
  return account === 'body' ? { wac: WAC_SCHEMA } : {}
}

/** The members that a schema requires and the server does not fill in. */
function neededIn({ schema, set }: BodyRules): string[] {
  return (schema?.required ?? []).filter((member) => !Object.hasOwn(set, member))
}

/** The members that a body need not have and may only repeat, as they are sent. */
function filledIn(operation: Operation, { set }: BodyRules): string[] {
  const names = Object.keys(set)
  const taken = new Set(names.map(sameName))
  const others = sourcesOf(operation).filter((name) => name !== 'wac' || operation.account === 'path')
  return [...names, ...others.filter((name) => !taken.has(sameName(name)))]
}

function schemaOf(operation: Operation, first: Operation) {
  const { name, method, segments, query, formats, body, response, application } = operation
  const inPath = segments.flatMap((part, index): [name: string, schema: object][] => {
    const documented = first.segments[index]!
    if ('literal' in part || 'literal' in documented) return []
    const { parameter } = part
    const schema = parameter === 'wac' ? WAC_SCHEMA : schemaOfParameter(operation.parameters[parameter]!)
    return [[documented.parameter, schema]]
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

function schemaOfQuery(type: QueryType): Exemplified {
  if (typeof type === 'object' && 'enum' in type)
    return { type: 'string', enum: type.enum, examples: [type.enum[0]] }
  if (typeof type === 'object' && 'list' in type) return listOf(schemaOfQuery(type.list), type.max)
  if (typeof type === 'object') return integerWithin(...type.integer)
  switch (type) {
    case 'integer':
      return integerWithin(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)
    case 'number':
      return { type: 'number', ...NUMBER_BOUNDS, description: NUMBER_GRAMMAR, examples: [0.5] }
    case 'boolean':
      return { type: 'boolean', examples: [true] }
    case 'text':
      return { type: 'string', maxLength: 512, pattern: NO_CONTROLS, examples: ['pump'] }
  }
}

interface Exemplified {
  readonly examples: readonly unknown[]
  readonly [keyword: string]: unknown
}

/** A value that a client writes without an exponent is within them. */
const NUMBER_BOUNDS = { minimum: -999_999_999_999_999, maximum: 999_999_999_999_999 }

const NUMBER_GRAMMAR =
  'At most 15 digits on each side of the point, and an exponent of at most three: `0.5`, `1e-7`.'

function listOf(items: Exemplified, maxItems: number): Exemplified {
  return { type: 'array', maxItems, items, examples: [[items.examples[0]]] }
}

function integerWithin(minimum: number, maximum: number): Exemplified {
  const example = Math.min(Math.max(1, minimum), maximum)
  return { type: 'integer', format: 'int64', minimum, maximum, examples: [example] }
}
