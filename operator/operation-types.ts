import {
  type Operation,
  type ParameterType,
  pathOfOperation,
  type QueryType,
} from '../src/config/operation.ts'
import { schemaAt } from '../src/config/operation-schema.ts'
import { isObject } from '../src/json.ts'
import { DATA } from '../src/paths.ts'

type Schema = Readonly<Record<string, unknown>>

/** A TypeScript module with one typed call for each operation, to stand beside `bff-client.ts`. */
export function typesOf(operations: readonly Operation[]): string {
  const types: string[] = []
  const calls = operations.map((operation) => callOf(operation, types))
  const table = `export const operations = {\n${calls.join('\n')}\n}\n`
  // A page may be compiled with `noUnusedLocals`.
  const isRead = operations.some(({ formats }) => formats !== 'any')
  const imported = ['type CallOptions', ...(isRead ? ['parseJson'] : []), 'request'].join(', ')
  const head = operations.length === 0 ? [] : [`import { ${imported} } from './bff-client'\n`]
  const helpers = operations.length === 0 ? [] : [SEND, ...(isRead ? [READ] : [])]
  return [NOTE, ...head, ...types, table, ...helpers].join('\n')
}

const NOTE =
  '// Typed calls of the operations of OPERATIONS_FILE: made by `npm run operations -- types`, not to be edited.'

/** The members of a call that are no parameters of the path. */
const OWN_MEMBERS = ['query', 'format', 'body']

const SEND = `interface Call {
  [parameter: string]: unknown
  query?: object | undefined
  format?: string | undefined
  body?: unknown
}

async function send(method: string, path: string, { query, format, body }: Call, options?: CallOptions) {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query ?? {}))
    for (const one of [value].flat()) if (one !== undefined) search.append(name, String(one))
  if (format !== undefined) search.set('format', format)
  const isFile = body instanceof Blob || body instanceof FormData || body instanceof ArrayBuffer
  const sent = body === undefined || isFile ? body : JSON.stringify(body)
  const target = search.size > 0 ? \`\${path}?\${search}\` : path
  return await request(target, { ...options, method, ...(sent === undefined ? {} : { body: sent }) } as never)
}
`

const READ = `async function read<T>(method: string, path: string, call: Call, options?: CallOptions): Promise<T> {
  const text = await (await send(method, path, call, options)).text()
  if (call.format !== undefined && call.format !== 'JSON') return text as T
  return (text === '' ? undefined : parseJson(text, false)) as T
}
`

function callOf(operation: Operation, types: string[]): string {
  const { name, method, segments, formats, body, response, query } = operation
  const inPath = segments.flatMap((part) => ('parameter' in part ? [part.parameter] : []))
  const path = segments
    .map((part) =>
      'literal' in part
        ? `/${part.literal}`
        : `/\${encodeURIComponent(String(call[${quote(memberOf(part.parameter))}]))}`,
    )
    .join('')
  const members = [
    ...inPath.map((parameter) => `${quote(memberOf(parameter))}: ${typeOfParameter(parameter, operation)}`),
    ...(Object.keys(query).length === 0 ? [] : [`query?: ${typeOfQuery(query)} | undefined`]),
    ...(body === null ? [] : [`body: ${typeOfBody(operation, types)}`]),
  ]
  const answer = response === null ? 'unknown' : `${name}Response`
  if (response !== null) types.push(...namedType(answer, response as Schema))
  const target = `\`${DATA}${path}\``
  const summary = `  /** ${method} ${pathOfOperation(operation)} */`
  const key = quote(name[0]!.toLowerCase() + name.slice(1))
  const send = (kind: string, sent = 'call'): string => `${kind}('${method}', ${target}, ${sent}, options)`

  if (formats === 'any')
    return `${summary}\n  ${key}: (call: { ${members.join('; ')} }, options?: CallOptions): Promise<Response> => ${send('send')},`
  if (formats.length > 1) {
    const names = formats.map((format) => `'${format}'`).join(' | ')
    const usual = `'${formats[0]}'`
    // `read` parses what comes without a format as JSON.
    const sent = formats[0] === 'JSON' ? 'call' : `{ ...call, format: call.format ?? ${usual} }`
    const all = [...members, 'format?: F | undefined'].join('; ')
    const result = `Promise<F extends 'JSON' ? ${answer} : string>`
    return `${summary}\n  ${key}: <F extends ${names} = ${usual}>(call: { ${all} }, options?: CallOptions): ${result} => ${send('read', sent)},`
  }
  const result = formats[0] === 'JSON' ? answer : 'string'
  const kind = formats[0] === 'JSON' ? `read<${result}>` : 'read<string>'
  const sent = formats[0] === 'JSON' ? 'call' : `{ ...call, format: '${formats[0]}' }`
  return `${summary}\n  ${key}: (call: { ${members.join('; ')} }, options?: CallOptions): Promise<${result}> => ${send(kind, sent)},`
}

/** No parameter's own name has a `$`. */
function memberOf(parameter: string): string {
  return OWN_MEMBERS.includes(parameter) ? `$${parameter}` : parameter
}

function quote(name: string): string {
  return JSON.stringify(name)
}

function typeOfParameter(name: string, { parameters }: Operation): string {
  const type: ParameterType = name === 'wac' ? 'id' : parameters[name]!
  if (type === 'integer') return 'number | bigint'
  return type === 'id' ? 'string' : unionOf(type.enum)
}

function typeOfQuery(query: Operation['query']): string {
  const members = Object.entries(query).map(
    ([name, type]) => `${quote(name)}?: ${typeOfValue(type)} | undefined`,
  )
  return `{ ${members.join('; ')} }`
}

function typeOfValue(type: QueryType): string {
  if (type === 'text') return 'string'
  if (type === 'boolean') return 'boolean'
  if (typeof type === 'string' || 'integer' in type) return 'number'
  return 'list' in type ? `(${typeOfValue(type.list)})[]` : unionOf(type.enum)
}

function unionOf(words: readonly unknown[]): string {
  return words.map((word) => JSON.stringify(word)).join(' | ')
}

/** Without the members that the server fills in, but for the account where the body may name it. */
function typeOfBody({ name, account, body }: Operation, types: string[]): string {
  if (body === null) return 'never'
  if ('types' in body) return 'Blob | FormData | ArrayBuffer'
  if (body.schema === null) return 'Record<string, unknown>'
  const filled = Object.keys(body.set)
  const { properties, required = [], ...others } = body.schema
  const left = Object.entries(properties ?? {}).filter(([member]) => !filled.includes(member))
  const schema = {
    ...others,
    ...(properties === undefined ? {} : { properties: Object.fromEntries(left) }),
    required: required.filter((member) => !filled.includes(member)),
  }
  const more = account === 'body' ? '{ "wac"?: string | undefined }' : null
  types.push(...namedType(`${name}Body`, schema, more))
  return `${name}Body`
}

/** The declaration of a schema under this name, with the members of the type `more`, and of each schema that it refers to. */
function namedType(name: string, root: Schema, more: string | null = null): string[] {
  const references = new Map<string, string>()
  const declared: string[] = []
  const body = typeOf(root)
  return [`export type ${name} = ${more === null ? body : `(${body}) & ${more}`}\n`, ...declared]

  function nameOf(reference: string): string {
    const known = references.get(reference)
    if (known !== undefined) return known
    if (reference === '#') return name
    const end = reference.split('/').at(-1)!.replace(/\W/g, '')
    const own = `${name}${end.charAt(0).toUpperCase()}${end.slice(1)}${references.size === 0 ? '' : references.size}`
    references.set(reference, own)
    declared.push(`export type ${own} = ${typeOf(schemaAt(root, reference))}\n`)
    return own
  }

  function typeOf(schema: unknown): string {
    if (!isObject(schema)) return schema === false ? 'never' : 'unknown'
    if (typeof schema.$ref === 'string') return nameOf(schema.$ref)
    if ('const' in schema) return JSON.stringify(schema.const)
    if (Array.isArray(schema.enum)) return unionOf(schema.enum)
    for (const [keyword, between] of [
      ['anyOf', ' | '],
      ['oneOf', ' | '],
      ['allOf', ' & '],
    ] as const) {
      const parts = schema[keyword]
      // With members of its own beside it, the parts only narrow.
      if (Array.isArray(parts) && schema.properties === undefined && schema.type === undefined)
        return parts.map((part) => `(${typeOf(part)})`).join(between)
    }
    const kinds = [schema.type ?? (schema.properties === undefined ? [] : 'object')].flat()
    if (kinds.length === 0) return 'unknown'
    if (schema.nullable === true && schema.type !== undefined) kinds.push('null')
    return [...new Set(kinds)].map((kind) => typeOfKind(String(kind), schema)).join(' | ')
  }

  function typeOfKind(kind: string, schema: Schema): string {
    switch (kind) {
      case 'integer':
      case 'number':
        return 'number'
      case 'array':
        return isObject(schema.items) || schema.items === undefined
          ? `(${typeOf(schema.items)})[]`
          : 'unknown[]'
      case 'object':
        return typeOfObject(schema)
      default:
        return kind
    }
  }

  function typeOfObject({ properties, required, additionalProperties }: Schema): string {
    const needed: unknown[] = Array.isArray(required) ? required : []
    const known = Object.entries(isObject(properties) ? properties : {})
    if (known.length === 0)
      return `Record<string, ${isObject(additionalProperties) ? typeOf(additionalProperties) : 'unknown'}>`
    const members = known.map(([member, schema]) =>
      needed.includes(member)
        ? `${quote(member)}: ${typeOf(schema)}`
        : `${quote(member)}?: ${typeOf(schema)} | undefined`,
    )
    return `{ ${members.join('; ')} }`
  }
}
