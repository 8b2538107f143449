import type { FastifyRequest } from 'fastify'
import {
  type Filled,
  type Format,
  ID,
  isQueryText,
  type Operation,
  type ParameterType,
  type QueryType,
  sameName,
} from '../config/operations.ts'
import { problem } from '../errors.ts'
import { parameterAt, toProblem } from '../http/problems.ts'
import { DATA } from '../paths.ts'
import { acceptedFormat, MEDIA_TYPE, namedFormat } from './formats.ts'
import { type AccountRules, type OutgoingRequest, queryParameters, readWac } from './outgoing-request.ts'

/** The part of a request that is known before its body is read. */
export interface Target {
  /** Of the resource server, with its query. */
  readonly path: string
  readonly format: Format
  /** The path parameters as members of a body, and the account. */
  readonly values: Readonly<Record<string, string | number>>
  readonly targetId: string | null
}

/** A declared operation as functions: nothing of the declaration is read again for a request. */
export interface CompiledOperation {
  readonly operation: Operation
  /** The route pattern. */
  readonly url: string
  /** Reads path and query. Throws the problem with them. */
  readTarget(request: FastifyRequest): Target
  /** `body`: parsed, if the operation takes one. Throws the problem with it. */
  toOutgoing(request: FastifyRequest, target: Target, body: unknown): OutgoingRequest
}

/** The route pattern of an operation, below `/data`. */
export function patternOf({ segments }: Pick<Operation, 'segments'>): string {
  return (
    DATA + segments.map((part) => ('literal' in part ? `/${part.literal}` : `/:${part.parameter}`)).join('')
  )
}

/** `operation` for requests with these accounts. */
export function compileOperation(operation: Operation, accounts: AccountRules): CompiledOperation {
  const { name, method, account, body: rules, application } = operation
  const readPath = compilePath(operation, accounts)
  const readQuery = compileQuery(operation)
  const fill = rules === null ? null : compileBody(operation, accounts)
  return {
    operation,
    url: patternOf(operation),
    readTarget(request) {
      const { path, values, targetId } = readPath(request.params as Record<string, string>)
      const { format, query } = readQuery(request)
      return { path: `${path}?${query}`, format, values, targetId }
    },
    toOutgoing(request, { path, format, values, targetId }, body) {
      const filled = fill === null ? null : fill(body, values)
      const wac = account === 'none' ? null : String(filled?.wac ?? values.wac)
      return {
        operation: name,
        wac,
        fluxId: null,
        targetId,
        application,
        method: request.method === 'HEAD' ? 'HEAD' : method,
        path,
        accept: MEDIA_TYPE[format],
        contentType: filled === null ? MEDIA_TYPE[format] : MEDIA_TYPE.JSON,
        body: filled === null ? null : Buffer.from(JSON.stringify(filled.body)),
        jsonp: false,
      }
    },
  }
}

type Values = Record<string, string | number>

function compilePath({ segments, parameters }: Operation, accounts: AccountRules) {
  const readers = segments.map((segment): ((params: Record<string, string>, values: Values) => string) => {
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
    const isInteger = type === 'integer'
    return (params, values) => {
      const text = params[parameter] ?? ''
      if (!accepts(text)) throw problem('invalid_request', `The path parameter ${parameter} is not valid.`)
      values[parameter] = isInteger ? Number(text) : text
      return text
    }
  })
  const own = Object.keys(parameters)
  return (params: Record<string, string>) => {
    const values: Values = {}
    let path = ''
    for (const read of readers) path += `/${read(params, values)}`
    const targetId = own.length === 0 ? null : own.map((parameter) => values[parameter]).join('/')
    return { path, values, targetId }
  }
}

const UNSIGNED = /^(?:0|[1-9]\d{0,15})$/
const INTEGER = /^(?:0|-?[1-9]\d{0,15})$/
const NUMBER = /^-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?$/

function compileParameter(type: ParameterType): (text: string) => boolean {
  if (type === 'integer') return (text) => UNSIGNED.test(text) && Number.isSafeInteger(Number(text))
  if (type === 'id') return (text) => ID.test(text)
  const words = new Set(type.enum)
  return (text) => words.has(text)
}

function compileQueryType(type: QueryType): (text: string) => boolean {
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

function compileQuery({ query, formats }: Operation) {
  const types = new Map(Object.entries(query).map(([name, type]) => [name, compileQueryType(type)]))
  return ({ url, headers }: FastifyRequest): { format: Format; query: string } => {
    let format: Format | null = null
    const given = new Set<string>()
    const passed: string[] = []
    for (const [position, { name, value }] of queryParameters(url).entries()) {
      if (name.toLowerCase() === 'format') {
        if (format !== null) throw problem('invalid_request', 'The parameter format is repeated.')
        format = namedFormat(value, formats)
        continue
      }
      const accepts = types.get(name)
      if (accepts === undefined || given.has(name))
        throw problem('invalid_request', `${parameterAt(position, name)} is not known here, or is repeated.`)
      if (!accepts(value)) throw problem('invalid_request', `${parameterAt(position, name)} is not valid.`)
      given.add(name)
      passed.push(`${name}=${encodeURIComponent(value)}`)
    }
    format ??= acceptedFormat(headers, formats)
    return { format, query: [`format=${format}`, ...passed].join('&') }
  }
}

/** A member that the server fills in, or compares if the page gives it. */
interface Known {
  readonly spelling: string
  readonly source: Filled
}

function compileBody({ account, parameters, body }: Operation, accounts: AccountRules) {
  const { schema, validate, set } = body!
  const sources = [...Object.keys(parameters), ...(account === 'none' ? [] : ['wac'])]
  const known = new Map<string, Known>(
    [...sources.map((from): [string, Filled] => [from, { from }]), ...Object.entries(set)].map(
      ([spelling, source]) => [sameName(spelling), { spelling, source }],
    ),
  )
  const properties = schema !== null && 'properties' in schema ? Object.keys(schema.properties as object) : []
  const hidden = [...known.values()]
    .map(({ spelling }) => spelling)
    .filter((name) => !properties.includes(name))
  const written = Object.entries(set)

  return (given: unknown, ofPath: Values): { body: object; wac: string | null } => {
    if (typeof given !== 'object' || given === null || Array.isArray(given))
      throw problem('invalid_request', 'The body must be a JSON object.')
    const members = Object.entries(given as Record<string, unknown>)
    const wac = account === 'body' ? wacIn(members, accounts) : null
    const values = wac === null ? ofPath : { ...ofPath, wac }
    const resolve = (source: Filled) => ('from' in source ? values[source.from] : source.value)
    const result: Record<string, unknown> = {}
    const seen = new Set<string>()
    for (const [name, value] of members) {
      const filled = known.get(sameName(name))
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
    if (validate !== null) {
      const checked = { ...result }
      for (const name of hidden) delete checked[name]
      if (!validate(checked)) throw toProblem({ validation: validate.errors })
    }
    return { body: result, wac }
  }
}

/** The account that a body names, else the default. A second one is found when the members are compared. */
function wacIn(members: [name: string, value: unknown][], accounts: AccountRules): string {
  const given = members.find(([name]) => sameName(name) === 'wac')?.[1]
  if (given !== undefined && typeof given !== 'string')
    throw problem('invalid_request', 'The member wac must be a text.')
  return readWac(given, accounts)
}
