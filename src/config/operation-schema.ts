import { Ajv } from 'ajv'
import { isObject, jsonPointer } from '../json.ts'
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
  ...[
    'additionalItems',
    'additionalProperties',
    'not',
    'if',
    'then',
    'else',
    'contains',
    'propertyNames',
    'items',
  ],
])
const SCHEMAS_BY_NAME: ReadonlySet<string> = new Set(['properties', 'definitions', '$defs', 'dependencies'])
const LIST_OF_SCHEMAS: ReadonlySet<string> = new Set(['allOf', 'anyOf', 'oneOf', 'items'])

const MAX_PATTERN_TEXT = 256
/** Ways to match one text that a pattern may try; fewer where a body may hold thousands of such texts. */
const MAX_WAYS = 2 ** 20
const MAX_WAYS_OF_MANY = 2 ** 12
/** Keywords whose schema may meet many values. */
const OF_MANY: ReadonlySet<string> = new Set([
  ...['items', 'additionalItems', 'contains', 'additionalProperties', 'propertyNames'],
])
const MAX_UNIQUE = 256
const MAX_SCHEMA_DEPTH = 32

let ajv: Ajv | undefined

/**
 * What is no JSON schema, and what Ajv would accept in that of a body and this server does not, each with its JSON pointer.
 * Ajv may still refuse to compile a schema without these faults.
 */
export function schemaFaults(schema: object): SchemaFault[] {
  // Made once, and only where a schema is declared: that takes longer than to check one.
  ajv ??= new Ajv({ allErrors: true, logger: false })
  const found = ownFaults(schema, ajv.RULES.keywords)
  if (ajv.validateSchema(schema)) return found
  const byPointer = new Map(found.map((fault) => [fault.pointer, fault]))
  for (const { instancePath: pointer, message = '', params } of ajv.errors ?? []) {
    const choices = 'allowedValues' in params ? `: ${params.allowedValues.join(', ')}` : ''
    if (!byPointer.has(pointer)) byPointer.set(pointer, { pointer, fault: message + choices })
  }
  return [...byPointer.values()]
}

function ownFaults(schema: object, known: Keywords): SchemaFault[] {
  const { type } = schema as { type?: unknown }
  const ofType =
    type === undefined || type === 'object' ? [] : [{ pointer: '/type', fault: 'must be "object"' }]
  // A reference may lead from a list to any part of the schema.
  const maxWays = JSON.stringify(schema).includes('"$ref":') ? MAX_WAYS_OF_MANY : MAX_WAYS
  return [...ofType, ...keywordFaults(schema, [], { known, maxWays }), ...referenceFaults(schema)]
}

/** Keywords by name. */
type Keywords = Readonly<Record<string, unknown>>

function keywordFaults(
  schema: unknown,
  path: readonly (string | number)[],
  { known, maxWays }: { known: Keywords; maxWays: number },
): SchemaFault[] {
  if (!isObject(schema)) return []
  if (path.length > MAX_SCHEMA_DEPTH) return [{ pointer: jsonPointer(...path), fault: 'is nested too deep' }]
  return Object.entries(schema).flatMap(([keyword, value]): SchemaFault[] => {
    const here = [...path, keyword]
    const faultHere = (fault: string) => [{ pointer: jsonPointer(...here), fault }]
    const refused = Object.hasOwn(REFUSED_KEYWORDS, keyword) ? REFUSED_KEYWORDS[keyword] : undefined
    if (refused !== undefined) return faultHere(refused)
    if (!Object.hasOwn(known, keyword)) return faultHere('is no keyword that is checked')
    if (keyword === 'pattern') {
      const fault = patternFault(value, schema.maxLength, maxWays)
      return fault === null ? [] : faultHere(fault)
    }
    // Each item is compared with each other.
    if (keyword === 'uniqueItems' && value === true && !isAtMost(schema.maxItems, MAX_UNIQUE))
      return faultHere(`needs maxItems of at most ${MAX_UNIQUE} beside it`)
    if ((keyword === 'enum' || keyword === 'const') && /"\$(?:ref|id)":/.test(JSON.stringify(value)))
      return faultHere('has a value that the OpenAPI document cannot show: $ref or $id')
    if (SCHEMAS_BY_NAME.has(keyword)) {
      if (!isObject(value)) return faultHere('must be an object')
      if (Object.hasOwn(value, '$ref') || Object.hasOwn(value, '$id'))
        return faultHere('has a name that the OpenAPI document cannot describe: $ref or $id')
    }
    const inside = { known, maxWays: OF_MANY.has(keyword) ? MAX_WAYS_OF_MANY : maxWays }
    return schemasIn(keyword, value).flatMap(([inner, part]) =>
      keywordFaults(part, [...path, ...inner], inside),
    )
  })
}

/** The schemas that a keyword holds, each with what leads to it. */
function schemasIn(keyword: string, value: unknown): [inner: string[], schema: unknown][] {
  const holdsMany =
    (LIST_OF_SCHEMAS.has(keyword) && Array.isArray(value)) ||
    (SCHEMAS_BY_NAME.has(keyword) && typeof value === 'object' && value !== null)
  if (holdsMany) return Object.entries(value as object).map(([name, part]) => [[keyword, name], part])
  return ONE_SCHEMA.has(keyword) ? [[[keyword], value]] : []
}

/** A schema inside a schema. `applied`: what is applied with it, to the same value (`same`) or to a part of it. */
interface Position {
  readonly reference: string | null
  readonly applied: { readonly to: string; readonly how: 'part' | 'same' | 'reference' }[]
}

/** Keywords whose schemas apply to parts of a value, of which each part meets one. */
const OF_PARTS: ReadonlySet<string> = new Set([
  ...['properties', 'items', 'additionalProperties', 'additionalItems', 'propertyNames'],
])

/**
 * References that leave the schema, or lead to something that is none and so was not checked; and recursions that meet a
 * value in more than one way, whose time doubles with each level of it.
 */
function referenceFaults(schema: object): SchemaFault[] {
  const positions = new Map<string, Position>()
  collectPositions(schema, [], positions)
  const reached = new Map([...positions.keys()].map((from) => [from, reachedFrom(from, positions)]))
  return [...positions].flatMap(([at, { reference }]): SchemaFault[] => {
    if (reference === null) return []
    const pointer = `${at}/$ref`
    if (!positions.has(reference))
      return [{ pointer, fault: 'must be # and the JSON pointer of a schema in this schema' }]
    if (!reached.get(at)!.has(at)) return []
    const circle = [...reached.get(at)!].filter((other) => reached.get(other)?.has(at))
    const isDoubled = circle.some((member) => {
      const inside = positions.get(member)!.applied.filter(({ to }) => circle.includes(to))
      const isChoice = inside.some(({ how }) => how === 'same')
      return isChoice || (inside.length > 1 && inside.some(({ how }) => how === 'reference'))
    })
    const hasNoParts = circle.every((member) =>
      positions.get(member)!.applied.every(({ to, how }) => !circle.includes(to) || how !== 'part'),
    )
    return isDoubled || hasNoParts
      ? [{ pointer, fault: 'refers to itself in a circle that a body could keep busy' }]
      : []
  })
}

function collectPositions(schema: unknown, path: readonly string[], positions: Map<string, Position>): void {
  // `true` and `false` are schemas too.
  const isSchema = typeof schema === 'boolean' || (typeof schema === 'object' && schema !== null)
  if (!isSchema || Array.isArray(schema) || path.length > MAX_SCHEMA_DEPTH) return
  const keywords = schema as Record<string, unknown>
  const reference = keywords.$ref === undefined ? null : pointerOf(keywords.$ref)
  const applied: Position['applied'] = reference === null ? [] : [{ to: reference, how: 'reference' }]
  positions.set(jsonPointer(...path), { reference, applied })
  for (const [keyword, value] of Object.entries(keywords)) {
    for (const [inner, part] of schemasIn(keyword, value)) {
      const here = [...path, ...inner]
      collectPositions(part, here, positions)
      if (keyword !== '$defs' && keyword !== 'definitions')
        applied.push({ to: jsonPointer(...here), how: OF_PARTS.has(keyword) ? 'part' : 'same' })
    }
  }
}

/** The JSON pointer in a reference; one that no schema has if it holds none. */
function pointerOf(reference: unknown): string {
  const text = String(reference)
  return text.startsWith('#') ? (decoded(text.slice(1)) ?? text) : text
}

/** The schemas that are applied after one is, itself included if they lead back to it. */
function reachedFrom(start: string, positions: ReadonlyMap<string, Position>): Set<string> {
  const reached = new Set<string>()
  const open = [start]
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    for (const { to } of positions.get(at)?.applied ?? []) {
      if (reached.has(to)) continue
      reached.add(to)
      open.push(to)
    }
  }
  return reached
}

function isAtMost(limit: unknown, most: number): boolean {
  return typeof limit === 'number' && limit <= most
}

function patternFault(pattern: unknown, maxLength: unknown, maxWays: number): string | null {
  if (!isAtMost(maxLength, MAX_PATTERN_TEXT))
    return `needs maxLength of at most ${MAX_PATTERN_TEXT} beside it`
  return typeof pattern === 'string' && isSlow(pattern, Number(maxLength), maxWays)
    ? 'repeats a group that repeats or chooses, refers back to a group, or has too many repetitions and choices for its maxLength: a text could keep it busy. A ^ at its beginning helps'
    : null
}

/** Whether matching could take long: a repeated group that itself repeats or chooses, a back-reference, or many ways to match. */
function isSlow(pattern: string, maxLength: number, maxWays: number): boolean {
  /** For each open group: it repeats or chooses. */
  const varies = [false]
  /** For each open group: its alternatives. */
  const alternatives = [1]
  let ways = 1
  /** The group that has just ended repeats or chooses. */
  let ended = false
  /** A quantifier has just ended, which a question mark makes lazy. */
  let quantified = false
  for (let at = 0; at < pattern.length; at += 1) {
    const hasEnded = ended
    const isLazy = quantified
    ended = quantified = false
    switch (pattern[at]) {
      case '\\':
        at += 1
        if (/[1-9k]/.test(pattern[at] ?? '')) return true
        break
      case '[':
        at = endOfClass(pattern, at)
        break
      case '(':
        varies.push(false)
        alternatives.push(1)
        // As of `(?:`, which is no quantifier.
        if (pattern[at + 1] === '?') at += 1
        break
      case ')':
        ended = varies.pop() ?? false
        ways *= alternatives.pop() ?? 1
        if (ended) varies[varies.length - 1] = true
        break
      case '|':
        varies[varies.length - 1] = true
        alternatives[alternatives.length - 1]! += 1
        break
      case '?':
        if (isLazy) break
        varies[varies.length - 1] = true
        ways *= 2
        break
      case '*':
      case '+':
      case '{': {
        if (hasEnded) return true
        const end = pattern[at] === '{' ? pattern.indexOf('}', at) : at
        ways *= pattern[at] === '{' ? repetitionsIn(pattern.slice(at + 1, end), maxLength) : maxLength
        varies[varies.length - 1] = true
        quantified = true
        at = Math.max(at, end)
      }
    }
  }
  const choices = alternatives.reduce((product, count) => product * count, ways)
  const isAnchored = pattern.startsWith('^') && alternatives[0] === 1
  return choices * (isAnchored ? 1 : maxLength) > maxWays
}

/** How many counts a quantifier such as `{1,3}` permits, without its braces. */
function repetitionsIn(quantifier: string, maxLength: number): number {
  const [, min, comma, max] = /^(\d{1,3})(,?)(\d{0,3})$/.exec(quantifier) ?? []
  if (comma === '') return 1
  if (min === undefined) return maxLength
  return max === '' ? maxLength : Math.max(1, Number(max) - Number(min) + 1)
}

function endOfClass(pattern: string, start: number): number {
  let end = start + 1
  while (end < pattern.length && pattern[end] !== ']') end += pattern[end] === '\\' ? 2 : 1
  return end
}
