import { Ajv, type ValidateFunction } from 'ajv'
import { ID, WAC } from '../paths.ts'

export const FORMATS = ['JSON', 'XML', 'CSV', 'JSV'] as const

/** A format of a response of the resource server. */
export type Format = (typeof FORMATS)[number]

export const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const

export type Method = (typeof METHODS)[number]

/** What a path parameter may be. */
export type ParameterType = 'integer' | 'id' | { readonly enum: readonly string[] }

/** What a value of the query may be. */
export type QueryValue =
  | 'integer'
  | 'number'
  | 'boolean'
  | 'text'
  | { readonly integer: readonly [min: number, max: number] }
  | { readonly enum: readonly string[] }

/** What a parameter of the query may be: one value, or up to `max` values under one name. */
export type QueryType = QueryValue | { readonly list: QueryValue; readonly max: number }

/** One segment of a path. */
export type Segment = { readonly literal: string } | { readonly parameter: string }

/** What the server writes into a body: a value, or that of a path parameter or of the account. */
export type Filled = { readonly value: string | number | boolean | null } | { readonly from: string }

/** A JSON Schema of an object or, where its type says so, of an array, as Ajv takes it. */
export interface BodySchema {
  readonly properties?: object
  readonly required?: readonly string[]
  readonly [keyword: string]: unknown
}

/** A body of JSON. */
export interface BodyRules {
  /** As declared in the file; null accepts any object. */
  readonly schema: BodySchema | null
  readonly set: Readonly<Record<string, Filled>>
  /** Whether a filled-in member under another spelling is an unknown one. */
  readonly exactNames: boolean
}

/** A body that is sent on as it comes, neither kept nor checked. */
export interface UploadRules {
  /** Media types in lower case, without parameters. */
  readonly types: readonly string[]
  readonly limitBytes: number
}

/** Some platforms take account, id or method from a field of such a body before they look at the path. */
export const FORM_TYPES: ReadonlySet<string> = new Set([
  'multipart/form-data',
  'application/x-www-form-urlencoded',
])

/** An operation of the resource server as a file or `built-in.ts` declares it, checked. */
export interface Operation {
  readonly name: string
  readonly method: Method
  /** Of the path at the resource server. */
  readonly segments: readonly Segment[]
  readonly account: 'path' | 'body' | 'none'
  /** Without `wac`. */
  readonly parameters: Readonly<Record<string, ParameterType>>
  readonly query: Readonly<Record<string, QueryType>>
  /** `any`: what the resource server chooses by the browser's `Accept`, for files and pictures. */
  readonly formats: readonly Format[] | 'any'
  /** Whether the query names the format to the resource server too, and not `Accept` alone. */
  readonly formatInQuery: boolean
  /** null: none is sent. */
  readonly body: BodyRules | UploadRules | null
  /** JSON Schema of the response, for documents alone: nothing is checked. */
  readonly response: object | null
  /** Readable without a session, by the application's own token. */
  readonly application: boolean
}

/** At most 512 code points without control characters. */
export function isQueryText(text: string): boolean {
  return [...text].length <= 512 && !/\p{Cc}/u.test(text)
}

/**
 * How names are compared where the platform may read them without regard to case, separators or blanks at the ends. Upper
 * case first: some letters, as the long s, are only then the same.
 */
export function sameName(name: string): string {
  return name.toUpperCase().toLowerCase().replace(/[_-]+/g, '').trim()
}

/** They would name an account or a format, present another token, or turn the response into a script. */
const RESERVED_IN_QUERIES: ReadonlySet<string> = new Set(
  [
    ...['wac', 'format', 'callback', 'access_token', 'oauth_token', 'token', 'bearer', 'api_key'],
    ...['authsecret', 'ss-id', 'ss-pid', 'ss-tok'],
  ].map(sameName),
)

// Not compared as the others are: `method` is an honest name.
const METHOD_OVERRIDES: ReadonlySet<string> = new Set([
  ...['x-http-method-override', 'x-http-method', 'x-method-override', '_method'],
])

/**
 * Whether the platform might take a parameter of the query for more than data of the operation, however it is spelled.
 * `spelled`: its `sameName`.
 */
export function isReservedInQueries(name: string, spelled = sameName(name)): boolean {
  return RESERVED_IN_QUERIES.has(spelled) || METHOD_OVERRIDES.has(name.trim().toLowerCase())
}

const AJV_OPTIONS = {
  strict: true,
  strictRequired: false,
  allowUnionTypes: true,
  verbose: true,
  logger: false,
  // A body without the member `valueOf` has none, although every object of JavaScript inherits one.
  ownProperties: true,
} as const

/** Compiles the schema of a body. Throws what Ajv finds wrong with it. */
export function compileBodySchema({ $schema, ...schema }: BodySchema): ValidateFunction {
  // With the `$schema` of another draft than its own Ajv refuses keywords that mean the same in both.
  return new Ajv(AJV_OPTIONS).compile(schema)
}

/** The parameters of the path and the account, whose values a body may repeat. */
export function sourcesOf({ account, parameters }: Pick<Operation, 'account' | 'parameters'>): string[] {
  return [...Object.keys(parameters), ...(account === 'none' ? [] : ['wac'])]
}

/** The segments of a path as declared, for example of `/{wac}/flux`. */
export function segmentsOf(path: string): Segment[] {
  return path
    .slice(1)
    .split('/')
    .map((part) => (part.startsWith('{') ? { parameter: part.slice(1, -1) } : { literal: part }))
}

/** The path of an operation as declared, for example `/{wac}/flux`. */
export function pathOfOperation({ segments }: Pick<Operation, 'segments'>): string {
  return segments
    .map((segment) => ('literal' in segment ? `/${segment.literal}` : `/{${segment.parameter}}`))
    .join('')
}

/** What is known of the paths of an operation. */
type Paths = Pick<Operation, 'segments' | 'parameters'>

/**
 * Whether the platform can take one path for both patterns. Parameters match each other, whatever their types are, and of
 * literals one with an `enum` matches its words alone. A suffix like `.json` names a format there, and no other path
 * (service document, section 4.3).
 */
export function mayMatchSamePath(one: Paths, other: Paths): boolean {
  if (one.segments.length !== other.segments.length) return false
  return one.segments.every((segment, index) => {
    const against = other.segments[index]!
    const isSame = (word: string, literal: string): boolean =>
      index === one.segments.length - 1
        ? isSameLiteral(word.replace(FORMAT_SUFFIX, ''), literal.replace(FORMAT_SUFFIX, ''))
        : isSameLiteral(word, literal)
    if ('parameter' in segment)
      return 'parameter' in against || takesLiteral(one, segment.parameter, against.literal, isSame)
    if ('parameter' in against) return takesLiteral(other, against.parameter, segment.literal, isSame)
    return isSame(segment.literal, against.literal)
  })
}

const FORMAT_SUFFIX = new RegExp(`\\.(?:${FORMATS.join('|')})$`, 'i')

/**
 * Whether both patterns match the same paths, but for the types of their parameters. Of others that match one path the
 * router takes the one with a literal at the first segment in which they differ.
 */
export function isSamePath(one: readonly Segment[], other: readonly Segment[]): boolean {
  if (one.length !== other.length) return false
  return one.every((segment, index) => {
    const against = other[index]!
    if ('literal' in segment && 'literal' in against) return isSameLiteral(segment.literal, against.literal)
    return 'parameter' in segment && 'parameter' in against
  })
}

/** The platform may read paths in any case. */
function isSameLiteral(one: string, other: string): boolean {
  return one.toLowerCase() === other.toLowerCase()
}

function takesLiteral(
  { parameters }: Paths,
  parameter: string,
  literal: string,
  isSame: (word: string, literal: string) => boolean,
): boolean {
  const type = Object.hasOwn(parameters, parameter) ? parameters[parameter] : undefined
  if (typeof type === 'object') return type.enum.some((word) => isSame(word, literal))
  return parameter === 'wac' ? WAC.test(literal) : ID.test(literal)
}

/** Whether a path, which begins with `/`, can belong to an operation below the path of `BASE_URL`. */
export function coversPath({ segments, parameters }: Paths, prefix: string, path: string): boolean {
  const below = prefix === '' ? [] : segmentsOf(prefix)
  const all = { segments: [...below, ...segments], parameters }
  return mayMatchSamePath(all, { segments: segmentsOf(path), parameters: {} })
}
