import { Ajv } from 'ajv'
import { isSafePattern } from 'redos-detector'
import safeRegex from 'safe-regex2'
import { isObject, jsonPointer, namesIn } from '../json.ts'
import { decoded } from '../paths.ts'

/** Why a JSON schema of an operation is not accepted, and where. */
interface SchemaFault {
  readonly pointer: string
  readonly fault: string
}

/** Keywords that a reader takes for a check although Ajv checks nothing, or that reach out of the schema. */
const REFUSED_KEYWORDS: Readonly<Record<string, string>> = {
  default: 'is not filled in: leave it out',
  readOnly: 'is not checked: leave it out',
  writeOnly: 'is not checked: leave it out',
  contentEncoding: 'is not checked: leave it out',
  contentMediaType: 'is not checked: leave it out',
  format: 'is not checked: use pattern or enum',
  $id: 'is not accepted: a schema refers only to itself',
  $async: 'is not accepted',
  patternProperties: 'is not accepted: name each member in properties',
}

const ONE_SCHEMA: ReadonlySet<string> = new Set([
  ...['additionalItems', 'additionalProperties', 'unevaluatedItems', 'unevaluatedProperties', 'items'],
  ...['not', 'if', 'then', 'else', 'contains', 'propertyNames'],
])
const SCHEMAS_BY_NAME: ReadonlySet<string> = new Set([
  ...['properties', 'patternProperties', 'definitions', '$defs', 'dependencies', 'dependentSchemas'],
])
const LIST_OF_SCHEMAS: ReadonlySet<string> = new Set(['allOf', 'anyOf', 'oneOf', 'items', 'prefixItems'])

/** Drafts in which the checked keywords mean the same; lists in `items` and `dependencies` are of draft-07 alone. */
const DRAFTS = /^https?:\/\/json-schema\.org\/(?:draft-07|draft\/2019-09|draft\/2020-12)\/schema#?$/
const DRAFT_07 = 'http://json-schema.org/draft-07/schema'

const ASTRAY = 'must be # and the JSON pointer of a schema in this schema'

const MAX_PATTERN_TEXT = 256
const MAX_UNIQUE = 256
const MAX_SCHEMA_DEPTH = 32

let ajv: Ajv | undefined

/**
 * What is no JSON schema, and what Ajv would accept in that of a body and this server does not, each with its JSON pointer.
 * `mayBeArray`: nothing is written into the body. Ajv may still refuse to compile a schema without these faults.
 */
export function schemaFaults(schema: object, mayBeArray: boolean): SchemaFault[] {
  return withFormFaults(schema, ownFaults(schema, { mayBeArray, keywords: checker().RULES.keywords }))
}

/** What is no JSON schema, and references that lead to none in it, each with its JSON pointer. */
export function responseFaults(schema: object): SchemaFault[] {
  const found: SchemaFault[] = []
  const seen = new Set<string>()
  collect(schema, [])
  return withFormFaults(schema, found)

  function collect(part: unknown, path: readonly string[]): void {
    const pointer = jsonPointer(...path)
    if (seen.has(pointer)) return
    seen.add(pointer)
    const fault = placeFault(part, path)
    if (fault !== null) found.push({ pointer, fault })
    if (fault !== null || !isObject(part)) return
    for (const [keyword, value] of Object.entries(part)) {
      if (keyword === '$id') found.push({ pointer: `${pointer}/$id`, fault: REFUSED_KEYWORDS.$id! })
      if (keyword === '$ref') {
        const target = schemaAt(schema, value)
        if (target === undefined) found.push({ pointer: `${pointer}/$ref`, fault: ASTRAY })
        else collect(target, namesIn(pointerOf(value)!))
      }
      for (const [inner, held] of schemasIn(keyword, value)) collect(held, [...path, ...inner])
    }
  }
}

/** The schema in `root` to which a reference leads; undefined if there is none. */
export function schemaAt(root: object, reference: unknown): unknown {
  const pointer = pointerOf(reference)
  if (pointer === null) return undefined
  let part: unknown = root
  for (const key of namesIn(pointer)) {
    if (typeof part !== 'object' || part === null || !Object.hasOwn(part, key)) return undefined
    part = (part as Record<string, unknown>)[key]
  }
  return isSchema(part) ? part : undefined
}

/** `true` and `false` are schemas too. */
function isSchema(value: unknown): value is Record<string, unknown> | boolean {
  return isObject(value) || typeof value === 'boolean'
}

/** Why no schema can be here. */
function placeFault(value: unknown, path: readonly (string | number)[]): string | null {
  if (path.length > MAX_SCHEMA_DEPTH) return 'is nested too deep'
  return isSchema(value) ? null : 'must be a JSON Schema: an object, true or false'
}

/** Made once, and only where a schema is declared: that takes longer than to check one. */
function checker(): Ajv {
  ajv ??= new Ajv({ allErrors: true, logger: false })
  return ajv
}

function withFormFaults(schema: object, found: SchemaFault[]): SchemaFault[] {
  const ajv = checker()
  // Not by its own `$schema`: Ajv throws for one that it does not know.
  if (ajv.validate(DRAFT_07, schema)) return found
  const byPointer = new Map(found.map((fault) => [fault.pointer, fault]))
  for (const { instancePath: pointer, message = '', params } of ajv.errors ?? []) {
    const choices = 'allowedValues' in params ? `: ${params.allowedValues.join(', ')}` : ''
    if (!byPointer.has(pointer)) byPointer.set(pointer, { pointer, fault: message + choices })
  }
  return [...byPointer.values()]
}

function ownFaults(
  schema: object,
  { mayBeArray, keywords }: { mayBeArray: boolean; keywords: Walk['keywords'] },
): SchemaFault[] {
  const { type } = schema as { type?: unknown }
  const isKnown = type === undefined || type === 'object' || (type === 'array' && mayBeArray)
  const expected = mayBeArray ? 'must be "object" or "array"' : 'must be "object"'
  const ofType = isKnown ? [] : [{ pointer: '/type', fault: expected }]
  const walk: Walk = { keywords, schemas: new Set(), references: [] }
  const ofKeywords = keywordFaults(schema, [], walk)
  const astray = walk.references.filter(({ to }) => to === null || !walk.schemas.has(to))
  return [...ofType, ...ofKeywords, ...astray.map(({ pointer }) => ({ pointer, fault: ASTRAY }))]
}

/** What is known and seen while a schema is read. */
interface Walk {
  /** Those that Ajv checks, by name. */
  readonly keywords: Readonly<Record<string, unknown>>
  /** JSON pointers of the schemas that were checked: a reference must lead to one. */
  readonly schemas: Set<string>
  readonly references: { readonly pointer: string; readonly to: string | null }[]
}

function keywordFaults(schema: unknown, path: readonly (string | number)[], walk: Walk): SchemaFault[] {
  const pointer = jsonPointer(...path)
  const fault = placeFault(schema, path)
  if (fault !== null) return [{ pointer, fault }]
  walk.schemas.add(pointer)
  if (!isObject(schema)) return []
  return Object.entries(schema).flatMap(([keyword, value]): SchemaFault[] => {
    const here = jsonPointer(...path, keyword)
    const faultHere = (fault: string) => [{ pointer: here, fault }]
    const refused = Object.hasOwn(REFUSED_KEYWORDS, keyword) ? REFUSED_KEYWORDS[keyword] : undefined
    if (refused !== undefined) return faultHere(refused)
    if (!Object.hasOwn(walk.keywords, keyword)) return faultHere('is no keyword that is checked')
    if (keyword === '$schema' && !(typeof value === 'string' && DRAFTS.test(value)))
      return faultHere(`must be that of draft-07 (${DRAFT_07}#), 2019-09 or 2020-12`)
    if (keyword === '$ref') walk.references.push({ pointer: here, to: pointerOf(value) })
    if (keyword === 'pattern') {
      const fault = patternFault(value, schema.maxLength)
      return fault === null ? [] : faultHere(fault)
    }
    // Each item is compared with each other.
    if (keyword === 'uniqueItems' && value === true && !isAtMost(schema.maxItems, MAX_UNIQUE))
      return faultHere(`needs maxItems of at most ${MAX_UNIQUE} beside it`)
    if (SCHEMAS_BY_NAME.has(keyword) && !isObject(value)) return faultHere('must be an object')
    return schemasIn(keyword, value).flatMap(([inner, part]) =>
      keywordFaults(part, [...path, ...inner], walk),
    )
  })
}

/** The schemas that a keyword of a schema holds, each with the names and indexes that lead to it. */
export function schemasIn(keyword: string, value: unknown): [inner: string[], schema: unknown][] {
  const holdsMany =
    (LIST_OF_SCHEMAS.has(keyword) && Array.isArray(value)) ||
    (SCHEMAS_BY_NAME.has(keyword) && isObject(value))
  if (holdsMany)
    return Object.entries(value)
      .filter(([, part]) => keyword !== 'dependencies' || !Array.isArray(part))
      .map(([name, part]) => [[keyword, name], part])
  return ONE_SCHEMA.has(keyword) ? [[[keyword], value]] : []
}

/** The JSON pointer in a reference to a part of the same schema; null in any other. Half a surrogate pair cannot be encoded. */
export function pointerOf(reference: unknown): string | null {
  return typeof reference === 'string' && /^#(?:\/\P{Cs}*)?$/u.test(reference)
    ? decoded(reference.slice(1))
    : null
}

function isAtMost(limit: unknown, most: number): boolean {
  return typeof limit === 'number' && limit <= most
}

function patternFault(pattern: unknown, maxLength: unknown): string | null {
  if (!isAtMost(maxLength, MAX_PATTERN_TEXT))
    return `needs maxLength of at most ${MAX_PATTERN_TEXT} beside it`
  return typeof pattern === 'string' && isSlow(pattern)
    ? 'can match one text in many ways, as where quantifiers are nested: a text could keep it busy. Let each part match what the part after it cannot'
    : null
}

/** Of ways to match one text, and of steps to count them; no time, so that the answer is always the same. */
const SEARCH = { unicode: true, maxScore: 100, maxSteps: 500, timeout: Number.POSITIVE_INFINITY } as const

/** Few plain repetitions try at most the third power of a short text's length; else a text must match in few ways. */
function isSlow(pattern: string): boolean {
  const limit = pattern.startsWith('^') ? 3 : 2
  if (!pattern.includes('|') && safeRegex(pattern, { limit })) return false
  try {
    if (!isSafePattern(pattern, SEARCH).safe) return true
    // With nothing after them nested quantifiers cost nothing. They are refused there too: one letter more makes them slow.
    const nests = !safeRegex(pattern, { limit: Number.POSITIVE_INFINITY })
    return nests && !isSafePattern(`^(?:${pattern})$`, SEARCH).safe
  } catch {
    // It reads no named groups. Ajv names what is no pattern at all.
    return true
  }
}
