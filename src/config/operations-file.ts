import { isObject, jsonFaults, jsonPointer, namesIn } from '../json.ts'
import { ID } from '../paths.ts'
import { BUILT_IN } from './built-in.ts'
import { type Kind, quoted, Refused, readText } from './kinds.ts'
import {
  type BodyRules,
  compileBodySchema,
  type Filled,
  FORMATS,
  isQueryText,
  isReservedInQueries,
  isSamePath,
  METHODS,
  type Method,
  mayMatchSamePath,
  type Operation,
  type ParameterType,
  type QueryType,
  type QueryValue,
  type Segment,
  sameName,
  segmentsOf,
  sourcesOf,
  type UploadRules,
} from './operation.ts'
import { responseFaults, schemaFaults } from './operation-schema.ts'

/** Operations of one file. */
export const MAX_OPERATIONS = 64
const MAX_ENUM = 256
/** Values of a query under one name: as many as a query may have parameters. */
export const MAX_LIST = 100
/** Of one upload. */
export const MAX_UPLOAD_BYTES = 100 * 1024 * 1024
const MAX_TYPES = 64

const NAME = /^[A-Z][A-Za-z0-9]{0,39}$/
const PARAMETER_NAME = /^[A-Za-z][A-Za-z0-9_]{0,39}$/
const QUERY_NAME = /^[A-Za-z0-9_.$-]{1,64}$/
const LITERAL = /^[A-Za-z0-9_.~-]+$/

/** Where the platform says who has signed in. */
export interface Identity {
  readonly operation: Operation
  /** The members and indexes that lead to the user's id in the response, and to the name; null for no name. */
  readonly id: readonly string[]
  readonly name: readonly string[] | null
}

/** What a file declares. */
export interface Declarations {
  readonly operations: readonly Operation[]
  readonly identity: Identity | null
}

/** What a file declares. A fault begins with its JSON pointer. */
export const OPERATIONS: Kind<Declarations> = {
  accepts: 'the path of a JSON file that declares operations',
  read(path) {
    const text = readText(path)
    if (text instanceof Refused)
      return new Refused(`must be a file that can be read, but ${quoted(path)} cannot (${text.fault})`)
    const { operations, identity, faults } = readOperations(text)
    const declared = { operations, identity }
    return faults.length > 0 ? new Refused(faults, declared) : declared
  },
}

type Faults = (pointer: string, fault: string) => void

/** The declarations of a file's text, and every fault in it: a JSON pointer and a sentence without a subject. */
export function readOperations(text: string): Declarations & { faults: readonly string[] } {
  const faults: string[] = []
  const report: Faults = (pointer, fault) => {
    faults.push(`${pointer === '' ? 'the whole' : pointer} ${fault}`)
  }
  let file: unknown
  try {
    file = JSON.parse(text)
  } catch (error) {
    const { message } = error as SyntaxError
    return { operations: [], identity: null, faults: [`must be a file of JSON, but is not: ${message}`] }
  }
  for (const { kind, pointer } of jsonFaults(text)) {
    if (kind === 'repeated') report(pointer, 'is there twice')
    else if (kind === 'reserved') report(pointer, 'has a name that is not accepted')
    else if (kind === 'inexact') report(pointer, 'is a number that cannot be passed on unchanged')
  }
  if (!isObject(file))
    return { operations: [], identity: null, faults: ['must be a file with a JSON object'] }
  onlyMembers(file, '', ['operations', 'identity'], report)
  const { operations: declared } = file
  if (!isObject(declared)) {
    report('/operations', 'must be an object of operations by their names')
    return { operations: [], identity: null, faults }
  }
  const names = Object.keys(declared)
  if (names.length > MAX_OPERATIONS)
    report('/operations', `must have at most ${MAX_OPERATIONS} operations, but has ${names.length}`)
  const operations = names.flatMap((name) => {
    const operation = readOperation(name, declared[name], report)
    return operation === null ? [] : [operation]
  })
  reportOverlaps(operations, report)
  return { operations, identity: readIdentity(file.identity, operations, report), faults }
}

function readIdentity(value: unknown, operations: readonly Operation[], report: Faults): Identity | null {
  if (value === undefined) return null
  const at = (...path: string[]) => jsonPointer('identity', ...path)
  if (!isObject(value)) {
    report(at(), 'must be an object')
    return null
  }
  onlyMembers(value, at(), ['operation', 'id', 'name'], report)
  const operation = operations.find(({ name }) => name === value.operation)
  if (operation === undefined) report(at('operation'), 'must be the name of a declared operation')
  else {
    if (operation.method !== 'GET') report(at('operation'), 'must be a GET')
    if (Object.keys(operation.parameters).length > 0)
      report(at('operation'), 'must have no parameter in its path but {wac}')
    if (operation.formats === 'any' || !operation.formats.includes('JSON'))
      report(at('operation'), 'must have the format JSON')
  }
  const id = readPointer(value.id)
  if (id === null) report(at('id'), 'must be a JSON pointer, as /id')
  const name = value.name === undefined ? null : readPointer(value.name)
  if (value.name !== undefined && name === null) report(at('name'), 'must be a JSON pointer, as /name')
  return operation === undefined || id === null ? null : { operation, id, name }
}

/** The members and indexes of a JSON pointer (RFC 6901) to something inside a value; null for another text. */
function readPointer(value: unknown): readonly string[] | null {
  if (typeof value !== 'string' || !/^(?:\/(?:[^~/]|~[01])*)+$/.test(value)) return null
  return namesIn(value)
}

const MEMBERS = [
  ...['method', 'path', 'account', 'parameters', 'query', 'formats', 'format', 'body', 'response'],
  'application',
]

function readOperation(name: string, value: unknown, report: Faults): Operation | null {
  const at = (...path: (string | number)[]) => jsonPointer('operations', name, ...path)
  if (!NAME.test(name))
    report(at(), 'must have a name of 1 to 40 letters and digits that begins with a capital letter')
  if (BUILT_IN.some((known) => known.name === name))
    report(at(), 'has the name of an operation that is built in')
  if (!isObject(value)) {
    report(at(), 'must be an object')
    return null
  }
  onlyMembers(value, at(), MEMBERS, report)

  const method = METHODS.find((known) => known === value.method)
  if (method === undefined) report(at('method'), `must be one of ${METHODS.join(', ')}`)
  const segments = readPath(value.path, at('path'), report)
  const account = readAccount(value.account, segments, at, report)
  const parameters = readParameters(value.parameters, segments, at, report)
  const body = readBody(value.body, { method, account, parameters }, at, report)
  const query = readQuery(value.query, { parameters, body }, at, report)
  const formats = readFormats(value.formats, at('formats'), report)
  const { format = 'both' } = value
  if (format !== 'both' && format !== 'accept') report(at('format'), 'must be "both" or "accept"')
  else if (formats === 'any' && value.format !== undefined)
    report(at('format'), 'must be left out with "formats": "any": the platform gets no format')
  const response = readResponse(value.response, at('response'), report)
  const { application = false } = value
  if (typeof application !== 'boolean') report(at('application'), 'must be true or false')
  if (application === true && method !== 'GET') report(at('application'), 'is for GET only')
  if (account === 'body' && body === null)
    report(at('account'), 'must not be "body": the operation has no body')
  if (method === undefined || segments === null) return null
  return {
    name,
    method,
    segments,
    account,
    parameters,
    query,
    formats,
    formatInQuery: format === 'both',
    body,
    response,
    application: application === true,
  }
}

type At = (...path: (string | number)[]) => string

function readPath(value: unknown, pointer: string, report: Faults): Segment[] | null {
  if (typeof value !== 'string' || !value.startsWith('/')) {
    report(pointer, 'must be a text that begins with /')
    return null
  }
  const segments = segmentsOf(value)
  let sound = true
  for (const [index, part] of value.slice(1).split('/').entries()) {
    const segment = segments[index]!
    const good =
      'parameter' in segment
        ? part.endsWith('}') && PARAMETER_NAME.test(segment.parameter)
        : LITERAL.test(part) && part !== '.' && part !== '..'
    if (good) continue
    sound = false
    report(
      pointer,
      `has a segment ${quoted(part)} that is neither one {parameter} nor of A-Z a-z 0-9 _ . ~ -`,
    )
  }
  const named = segments.flatMap((segment) => ('parameter' in segment ? [segment.parameter] : []))
  for (const name of repeatedIn(named)) report(pointer, `names {${name}} twice`)
  if (!segments.some((segment) => 'literal' in segment))
    report(pointer, 'must have a segment that is no parameter')
  return sound ? segments : null
}

function readAccount(
  value: unknown,
  segments: readonly Segment[] | null,
  at: At,
  report: Faults,
): Operation['account'] {
  const account = value === undefined ? 'path' : value
  if (account !== 'path' && account !== 'body' && account !== 'none') {
    report(at('account'), 'must be "path", "body" or "none"')
    return 'path'
  }
  const places = segments?.flatMap((segment, index) =>
    'parameter' in segment && segment.parameter === 'wac' ? [index] : [],
  )
  if (places === undefined) return account
  if (account === 'path' && places[0] !== 0)
    report(at('path'), 'must begin with /{wac}, or "account" must say where the account is')
  if (account === 'path' && places.length > 1)
    report(at('path'), 'must have {wac} as its first segment alone')
  if (account !== 'path' && places.length > 0)
    report(at('path'), `must not have {wac} with "account": "${account}"`)
  return account
}

function readParameters(
  value: unknown,
  segments: readonly Segment[] | null,
  at: At,
  report: Faults,
): Operation['parameters'] {
  if (value !== undefined && !isObject(value)) {
    report(at('parameters'), 'must be an object of types by the names of the parameters')
    return {}
  }
  const given = value ?? {}
  const inPath = (segments ?? []).flatMap((segment) =>
    'parameter' in segment && segment.parameter !== 'wac' ? [segment.parameter] : [],
  )
  for (const name of inPath) {
    if (sameName(name) === 'wac') report(at('path'), `must not have a parameter {${name}} besides {wac}`)
    if (!Object.hasOwn(given, name)) report(at('parameters'), `lacks the type of {${name}}`)
  }
  for (const name of repeatedIn(inPath.map(sameName))) report(at('path'), `has two parameters like {${name}}`)
  const read: Record<string, ParameterType> = {}
  for (const [name, type] of Object.entries(given)) {
    const pointer = at('parameters', name)
    if (segments !== null && !inPath.includes(name)) report(pointer, 'is no parameter of the path')
    if (type === 'integer' || type === 'id') read[name] = type
    else {
      const words = enumOf(type, (word) => ID.test(word))
      if (words === null) report(pointer, 'must be "integer", "id" or {"enum": […]} of ids')
      else read[name] = { enum: words }
    }
  }
  return read
}

function readQuery(
  value: unknown,
  { parameters, body }: Pick<Operation, 'parameters' | 'body'>,
  at: At,
  report: Faults,
): Operation['query'] {
  if (value === undefined) return {}
  if (!isObject(value)) {
    report(at('query'), 'must be an object of types by the names of the parameters')
    return {}
  }
  const ofBody = body === null || 'types' in body ? {} : { ...body.set, ...body.schema?.properties }
  const taken = new Set([...Object.keys(parameters), ...Object.keys(ofBody)].map(sameName))
  for (const name of repeatedIn(Object.keys(value).map((name) => name.toLowerCase())))
    report(at('query'), `names ${name} twice`)
  const read: Record<string, QueryType> = {}
  for (const [name, type] of Object.entries(value)) {
    const pointer = at('query', name)
    if (!QUERY_NAME.test(name)) report(pointer, 'must have a name of 1 to 64 of A-Z a-z 0-9 _ . $ -')
    if (isReservedInQueries(name)) report(pointer, 'cannot be declared')
    if (taken.has(sameName(name)))
      report(pointer, 'has the name of a member of the body or of a parameter of the path')
    const known = queryTypeOf(type)
    if (known === null)
      report(
        pointer,
        'must be "integer", {"integer": [min, max]}, "number", "boolean", "text", {"enum": […]}, or a {"list": TYPE, "max": N} of one of them',
      )
    else read[name] = known
  }
  return read
}

function queryTypeOf(type: unknown): QueryType | null {
  if (!isObject(type) || !('list' in type)) return queryValueOf(type)
  const { list, max, ...others } = type
  const value = queryValueOf(list)
  const isLimit = typeof max === 'number' && Number.isInteger(max) && max >= 1 && max <= MAX_LIST
  return value !== null && isLimit && Object.keys(others).length === 0 ? { list: value, max } : null
}

function queryValueOf(type: unknown): QueryValue | null {
  if (type === 'integer' || type === 'number' || type === 'boolean' || type === 'text') return type
  if (isObject(type) && Object.keys(type).join() === 'integer' && Array.isArray(type.integer)) {
    const [min, max, ...more]: unknown[] = type.integer
    const isRange = Number.isSafeInteger(min) && Number.isSafeInteger(max) && Number(min) <= Number(max)
    return isRange && more.length === 0 ? { integer: [Number(min), Number(max)] } : null
  }
  const words = enumOf(type, (word) => word !== '' && isQueryText(word))
  return words === null ? null : { enum: words }
}

function enumOf(type: unknown, accepts: (word: string) => boolean): readonly string[] | null {
  if (!isObject(type) || Object.keys(type).join() !== 'enum' || !Array.isArray(type.enum)) return null
  const words: unknown[] = type.enum
  const sound = words.every((word): word is string => typeof word === 'string' && accepts(word))
  return sound && words.length > 0 && words.length <= MAX_ENUM && new Set(words).size === words.length
    ? words
    : null
}

function readFormats(value: unknown, pointer: string, report: Faults): Operation['formats'] {
  if (value === undefined) return ['JSON']
  if (value === 'any') return 'any'
  const given: unknown[] = Array.isArray(value) ? value : []
  const formats = FORMATS.filter((format) => given.includes(format))
  if (formats.length === 0 || formats.length !== given.length)
    report(pointer, `must be a list of ${FORMATS.join(', ')}, each at most once, or "any"`)
  return formats
}

function readResponse(value: unknown, pointer: string, report: Faults): object | null {
  if (value === undefined) return null
  if (!isObject(value)) {
    report(pointer, 'must be a JSON Schema: an object')
    return null
  }
  for (const { pointer: inside, fault } of responseFaults(value)) report(pointer + inside, fault)
  return value
}

const BODY_METHODS: readonly (Method | undefined)[] = ['POST', 'PUT', 'PATCH', undefined]

function readBody(
  value: unknown,
  { method, account, parameters }: { method: Method | undefined } & Pick<Operation, 'account' | 'parameters'>,
  at: At,
  report: Faults,
): Operation['body'] {
  if (value === undefined) return null
  if (!BODY_METHODS.includes(method)) report(at('body'), 'is for POST, PUT and PATCH only')
  const rules = value === 'any' ? { any: true } : value
  if (!isObject(rules)) {
    report(at('body'), 'must be "any", or an object with "schema", "any": true or "types"')
    return null
  }
  if (rules.types !== undefined) return readUpload(rules, account, at, report)
  onlyMembers(rules, at('body'), ['schema', 'any', 'set'], report)
  if ((rules.any === true) === (rules.schema !== undefined))
    report(at('body'), 'must have either "schema" or "any": true')
  const set = readSet(rules.set, { account, parameters }, at, report)
  if (rules.schema === undefined) return { schema: null, set, exactNames: false }
  if (!isObject(rules.schema)) {
    report(at('body', 'schema'), 'must be an object')
    return null
  }
  const { schema } = rules
  const mayBeArray = account !== 'body' && Object.keys(set).length === 0
  reportSpellings(schema, [...sourcesOf({ account, parameters }), ...Object.keys(set)], at, report)
  const found = schemaFaults(schema, mayBeArray)
  for (const { pointer, fault } of found) report(at('body', 'schema') + pointer, fault)
  if (found.length === 0) {
    try {
      // A reference that leads back to itself ends in no stack.
      compileBodySchema(schema)({})
    } catch (error) {
      report(
        at('body', 'schema'),
        `is refused by Ajv: ${error instanceof Error ? error.message.slice(0, 200) : ''}`,
      )
    }
  }
  return { schema, set, exactNames: false }
}

const MEDIA_TYPE = /^[a-z0-9!#$&^_.+-]{1,64}\/[a-z0-9!#$&^_.+-]{1,64}$/

function readUpload(
  rules: Record<string, unknown>,
  account: Operation['account'],
  at: At,
  report: Faults,
): UploadRules | null {
  onlyMembers(rules, at('body'), ['types', 'limit'], report)
  if (account === 'body') report(at('account'), 'must not be "body" for an upload, which is not read')
  const given: unknown[] = Array.isArray(rules.types) ? rules.types : []
  const types = given.filter((type): type is string => typeof type === 'string' && MEDIA_TYPE.test(type))
  const isList = types.length > 0 && types.length === given.length && types.length <= MAX_TYPES
  if (!isList || repeatedIn(types).length > 0)
    report(at('body', 'types'), 'must be a list of media types in lower case, as image/png, each once')
  const { limit } = rules
  if (typeof limit === 'number' && Number.isInteger(limit) && limit >= 1 && limit <= MAX_UPLOAD_BYTES)
    return { types, limitBytes: limit }
  report(at('body', 'limit'), `must be a whole number of bytes, from 1 to ${MAX_UPLOAD_BYTES}`)
  return null
}

/** A schema sees a member as it is sent, and would refuse or miss it under another spelling. `sent`: later ones count. */
function reportSpellings(schema: object, sent: readonly string[], at: At, report: Faults): void {
  const spellings = new Map(sent.map((name) => [sameName(name), name]))
  const properties = 'properties' in schema && isObject(schema.properties) ? schema.properties : {}
  for (const name of Object.keys(properties)) {
    const spelling = spellings.get(sameName(name))
    if (spelling !== undefined && spelling !== name)
      report(at('body', 'schema', 'properties', name), `is sent as ${spelling}: write it so`)
  }
}

function readSet(
  value: unknown,
  { account, parameters }: Pick<Operation, 'account' | 'parameters'>,
  at: At,
  report: Faults,
): BodyRules['set'] {
  if (value === undefined) return {}
  if (!isObject(value)) {
    report(at('body', 'set'), 'must be an object of the members that the server fills in')
    return {}
  }
  const read: Record<string, Filled> = {}
  const sources = sourcesOf({ account, parameters })
  for (const name of repeatedIn(Object.keys(value).map(sameName)))
    report(at('body', 'set'), `has two members like ${name}`)
  for (const [name, member] of Object.entries(value)) {
    const pointer = at('body', 'set', name)
    const [, from] = (typeof member === 'string' && /^\{(.*)\}$/.exec(member)) || []
    const namesake = sources.find((source) => sameName(source) === sameName(name))
    if (namesake !== undefined && from !== namesake)
      report(pointer, `must be "{${namesake}}", or have another name`)
    if (from !== undefined) {
      if (!sources.includes(from)) report(pointer, `names {${from}}, which the path does not have`)
      read[name] = { from }
    } else if (typeof member === 'string' && /[{}]/.test(member))
      report(pointer, 'must be "{name}" of the path or the account, or a text without braces')
    else if (isScalar(member)) read[name] = { value: member }
    else report(pointer, 'must be a text, a number, true, false or null')
  }
  return read
}

function isScalar(value: unknown): value is string | number | boolean | null {
  return value === null || ['string', 'number', 'boolean'].includes(typeof value)
}

/** Two declarations of one path would leave it open which rules hold. */
function reportOverlaps(operations: readonly Operation[], report: Faults): void {
  for (const [index, operation] of operations.entries()) {
    const pointer = jsonPointer('operations', operation.name, 'path')
    for (const other of BUILT_IN) {
      if (other.method === operation.method && mayMatchSamePath(operation, other))
        report(pointer, `matches requests of ${other.name} too`)
    }
    for (const other of operations.slice(0, index)) {
      if (other.method === operation.method && isSamePath(operation.segments, other.segments))
        report(pointer, `matches requests of ${other.name} too`)
    }
  }
}

function onlyMembers(value: object, pointer: string, known: readonly string[], report: Faults): void {
  for (const name of Object.keys(value)) {
    if (!known.includes(name)) report(`${pointer}${jsonPointer(name)}`, 'is not known')
  }
}

function repeatedIn(names: readonly string[]): string[] {
  return [...new Set(names.filter((name, index) => names.indexOf(name) !== index))]
}
