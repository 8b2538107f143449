import type { IncomingHttpHeaders } from 'node:http'
import type { ValidateFunction } from 'ajv'
import type { FastifyContextConfig, FastifyRequest } from 'fastify'
import {
  type BodyRules,
  compileBodySchema,
  type Filled,
  type Format,
  isQueryText,
  type Method,
  type Operation,
  type ParameterType,
  type QueryType,
  type QueryValue,
  sameName,
  sourcesOf,
} from '../config/operation.ts'
import { problem } from '../errors.ts'
import { parameterAt, toProblem } from '../http/problems.ts'
import { isObject } from '../json.ts'
import { ID } from '../paths.ts'
import { acceptedFormat, MEDIA_TYPE, namedFormat } from './formats.ts'
import {
  type AccountRules,
  type OutgoingRequest,
  type QueryParameter,
  queryParameters,
  readWac,
} from './outgoing-request.ts'

/** An operation with the routes that lead to it. */
export interface RoutedOperation {
  readonly routes: readonly OperationRoute[]
  /** What the schemas of the routes refer to. */
  readonly schemas: readonly object[]
  readonly body: Operation['body']
  readonly read: ReadOperation
}

interface OperationRoute {
  readonly method: Method
  readonly url: string
  readonly schema: object
  readonly config?: Pick<FastifyContextConfig, 'mayBeFile' | 'documentedUrl' | 'documentedComponents'>
}

/** Reads path, query and the parsed body. Throws the problem with the first of them that has one. */
type ReadOperation = (request: FastifyRequest<{ Params: Params }>) => OutgoingRequest

/** What the document of the platform has for one operation alone. */
interface Particulars {
  /** The parameters of the path, from those of the route. Throws the problem with them. */
  readParams?(given: Params): Params
  /** In place of the declared parameters of the query. Throws the problem with them. */
  readQuery?(request: FastifyRequest<{ Params: Params }>): Query
}

/** Of the path, by their names in the route. */
export type Params = Readonly<Record<string, string>>

/** The query of a request. */
export interface Query {
  /** null: the browser's `Accept` goes on. */
  readonly format: Format | null
  /** To send, without its question mark; '' for none. */
  readonly query: string
  readonly jsonp: boolean
}

/** Nothing of the declaration is read again for a request, but the schema of the body for the first one. */
export function compileOperation(
  operation: Operation,
  accounts: AccountRules,
  { readParams, readQuery = compileQuery(operation) }: Particulars = {},
): ReadOperation {
  const { name, method, account, body: rules, application, formatInQuery } = operation
  const readPath = compilePath(operation, accounts)
  const isUpload = rules !== null && 'types' in rules
  const fill = rules === null || isUpload ? null : compileBody(operation, rules, accounts)
  return (request) => {
    const { params, headers } = request
    const { path, values, targetId } = readPath(readParams === undefined ? params : readParams(params))
    const { format, query, jsonp } = readQuery(request)
    const filled = fill === null ? null : fill(request.body, values)
    const wac = account === 'none' ? null : String(filled?.wac ?? values.wac)
    return {
      operation: name,
      wac,
      targetId,
      application,
      method: request.method === 'HEAD' ? 'HEAD' : method,
      path: query === '' ? path : `${path}?${query}`,
      accept: format === null ? (headers.accept ?? '*/*') : MEDIA_TYPE[format],
      contentType: contentType(headers, format),
      body: filled === null ? null : Buffer.from(JSON.stringify(filled.body)),
      uploadLength: isUpload ? Number(headers['content-length']) : null,
      jsonp,
      anyType: format === null,
    }
  }

  function contentType(headers: IncomingHttpHeaders, format: Format | null): string | null {
    if (isUpload) return headers['content-type']!
    if (fill !== null) return MEDIA_TYPE.JSON
    return format !== null && formatInQuery ? MEDIA_TYPE[format] : null
  }
}

/** The parameters of the path as members of a body, and the account. */
type Values = Record<string, string | number>

function compilePath({ segments, parameters }: Operation, accounts: AccountRules) {
  const readers = segments.map((segment): ((params: Params, values: Values) => string) => {
    if ('literal' in segment) return () => segment.literal
    const { parameter } = segment
    if (parameter === 'wac')
      return (params, values) => {
        const wac = readWac(params.wac, accounts)
        values.wac = wac
        return wac
      }
    const type = parameters[parameter]!
    const accepts = compileParameter(type)
    const expected = expectedOf(type)
    const isInteger = type === 'integer'
    return (params, values) => {
      const text = params[parameter] ?? ''
      if (!accepts(text)) throw problem('invalid_request', `${parameter} must be ${expected}.`)
      values[parameter] = isInteger ? Number(text) : text
      return text
    }
  })
  const own = Object.keys(parameters)
  return (params: Params) => {
    const values: Values = {}
    let path = ''
    for (const read of readers) path += `/${read(params, values)}`
    const targetId = own.length === 0 ? null : own.map((parameter) => values[parameter]).join('/')
    return { path, values, targetId }
  }
}

const UNSIGNED = /^(?:0|[1-9]\d{0,15})$/
const INTEGER = /^(?:0|-?[1-9]\d{0,15})$/
/** Browsers write small numbers with an exponent: `String(0.0000001)` is `1e-7`. */
const NUMBER = /^-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?(?:[eE][+-]?\d{1,3})?$/

/** Whether a segment of a path is a value of this type. */
export function compileParameter(type: ParameterType): (text: string) => boolean {
  if (type === 'integer') return (text) => UNSIGNED.test(text) && Number.isSafeInteger(Number(text))
  if (type === 'id') return (text) => ID.test(text)
  const words = new Set(type.enum)
  return (text) => words.has(text)
}

function expectedOf(type: ParameterType): string {
  if (type === 'integer') return `a whole number from 0 to ${Number.MAX_SAFE_INTEGER}`
  return type === 'id' ? '1 to 128 letters, digits, "-", "_", "." or "~"' : 'one of the declared words'
}

function compileQueryValue(type: QueryValue): (text: string) => boolean {
  if (type === 'integer') return isInteger
  if (type === 'number') return (text) => NUMBER.test(text)
  if (type === 'boolean') return (text) => text === 'true' || text === 'false'
  if (type === 'text') return isQueryText
  if ('integer' in type) {
    const [min, max] = type.integer
    return (text) => isInteger(text) && Number(text) >= min && Number(text) <= max
  }
  const words = new Set(type.enum)
  return (text) => words.has(text)
}

function isInteger(text: string): boolean {
  return INTEGER.test(text) && Number.isSafeInteger(Number(text))
}

function compileQuery({ query, formats, formatInQuery }: Operation) {
  const types = new Map(Object.entries(query).map(([name, type]) => [name, compileQueryType(type)]))
  return (request: FastifyRequest): Query => {
    const given = new Map<string, number>()
    const pass = ({ name, value }: QueryParameter, position: number): string => {
      const type = types.get(name)
      const before = given.get(name) ?? 0
      const at = parameterAt(position, name)
      if (type === undefined) throw problem('invalid_request', `${at} is not known here${hintAt(name)}.`)
      if (before === type.max)
        throw problem(
          'invalid_request',
          `${at} is ${before === 1 ? 'repeated' : `there more than ${before} times`}.`,
        )
      if (!type.accepts(value)) throw problem('invalid_request', `${at} is not valid.`)
      given.set(name, before + 1)
      return `${name}=${encodeURIComponent(value)}`
    }
    if (formats !== 'any') return queryWithFormat(request, { formats, formatInQuery }, pass)
    return { format: null, query: queryParameters(request.url).map(pass).join('&'), jsonp: false }
  }

  /** Some libraries name lists so, as axios does. */
  function hintAt(name: string): string {
    const plain = name.replace(/\[\d*\]$/, '')
    return plain !== name && types.has(plain) ? `: repeat ${plain} without brackets` : ''
  }
}

function compileQueryType(type: QueryType): { accepts: (text: string) => boolean; max: number } {
  return typeof type === 'object' && 'list' in type
    ? { accepts: compileQueryValue(type.list), max: type.max }
    : { accepts: compileQueryValue(type), max: 1 }
}

/** The format, by its parameter or the headers, then what `pass` makes of each other parameter. */
export function queryWithFormat(
  { url, headers }: FastifyRequest,
  { formats, formatInQuery }: { formats: readonly Format[]; formatInQuery: boolean },
  pass: (parameter: QueryParameter, position: number, spelled: string) => string,
): Query {
  let format: Format | null = null
  const passed: string[] = []
  for (const [position, parameter] of queryParameters(url).entries()) {
    const spelled = sameName(parameter.name)
    if (spelled !== 'format') passed.push(pass(parameter, position, spelled))
    else if (format !== null) throw problem('invalid_request', 'The parameter format is repeated.')
    else format = namedFormat(parameter.value, formats)
  }
  format ??= acceptedFormat(headers, formats)
  const query = formatInQuery ? [`format=${format}`, ...passed] : passed
  return { format, query: query.join('&'), jsonp: false }
}

/** A member that the server fills in, or compares if the page gives it. */
interface Known {
  readonly spelling: string
  readonly source: Filled
}

function compileBody(operation: Operation, { schema, set, exactNames }: BodyRules, accounts: AccountRules) {
  const keyOf = exactNames ? (name: string) => name : sameName
  const { account } = operation
  const known = new Map<string, Known>(
    [...sourcesOf(operation).map((from): [string, Filled] => [from, { from }]), ...Object.entries(set)].map(
      ([spelling, source]) => [keyOf(spelling), { spelling, source }],
    ),
  )
  const takesArray = schema?.type === 'array'
  const { properties: described = {}, required = [] } = schema ?? {}
  const properties = Object.keys(described)
  const hidden = [...known.values()]
    .map(({ spelling }) => spelling)
    .filter((name) => !properties.includes(name) && !required.includes(name))
  const written = Object.entries(set)
  // Compiled for the first body: the start of the server waits for none of it.
  let validate: ValidateFunction | null = null

  return (given: unknown, ofPath: Values): { body: object; wac: string | null } => {
    if (takesArray) {
      check(given)
      return { body: given as object, wac: null }
    }
    if (!isObject(given)) throw problem('invalid_request', 'The body must be a JSON object.')
    const members = Object.entries(given)
    const wac = account === 'body' ? wacIn(members, accounts) : null
    const values = wac === null ? ofPath : { ...ofPath, wac }
    const resolve = (source: Filled) => ('from' in source ? values[source.from] : source.value)
    const result: Record<string, unknown> = {}
    const seen = new Set<string>()
    for (const [name, value] of members) {
      const filled = known.get(keyOf(name))
      if (filled === undefined) {
        result[name] = value
        continue
      }
      const { spelling, source } = filled
      if (seen.has(spelling)) throw problem('invalid_request', `The member ${spelling} is there twice.`)
      if (value !== resolve(source))
        throw problem('invalid_request', `The member ${spelling} does not agree with the request.`)
      seen.add(spelling)
      result[spelling] = value
    }
    for (const [name, source] of written) result[name] = resolve(source)
    if (wac !== null) result[known.get('wac')!.spelling] = wac
    if (schema !== null) {
      const checked = { ...result }
      for (const name of hidden) delete checked[name]
      check(checked)
    }
    return { body: result, wac }
  }

  function check(value: unknown): void {
    validate ??= compileBodySchema(schema!)
    if (!validate(value)) throw toProblem({ validation: validate.errors })
  }
}

/** The account that a body names, else the default. A second one is found when the members are compared. */
function wacIn(members: [name: string, value: unknown][], accounts: AccountRules): string {
  const given = members.find(([name]) => sameName(name) === 'wac')?.[1]
  if (given !== undefined && typeof given !== 'string')
    throw problem('invalid_request', 'The member wac must be a text.')
  return readWac(given, accounts)
}
