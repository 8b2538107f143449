import { jsonPointer } from '../json.ts'

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
const MAX_UNBOUNDED = 3
const MAX_UNIQUE = 256
const MAX_SCHEMA_DEPTH = 32

/** What Ajv would accept in a schema and this server does not, each with its JSON pointer. */
export function schemaFaults(schema: unknown, path: readonly (string | number)[] = []): SchemaFault[] {
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) return []
  if (path.length > MAX_SCHEMA_DEPTH) return [{ pointer: jsonPointer(...path), fault: 'is nested too deep' }]
  const keywords = schema as Record<string, unknown>
  return Object.entries(keywords).flatMap(([keyword, value]): SchemaFault[] => {
    const here = [...path, keyword]
    const faultHere = (fault: string) => [{ pointer: jsonPointer(...here), fault }]
    const refused = Object.hasOwn(REFUSED_KEYWORDS, keyword) ? REFUSED_KEYWORDS[keyword] : undefined
    if (refused !== undefined) return faultHere(refused)
    if (keyword === '$ref' && !String(value).startsWith('#')) return faultHere('must begin with #')
    if (keyword === 'pattern') {
      const fault = patternFault(value, keywords.maxLength)
      return fault === null ? [] : faultHere(fault)
    }
    // Each item is compared with each other.
    if (keyword === 'uniqueItems' && value === true && !isAtMost(keywords.maxItems, MAX_UNIQUE))
      return faultHere(`needs maxItems of at most ${MAX_UNIQUE} beside it`)
    if (LIST_OF_SCHEMAS.has(keyword) && Array.isArray(value))
      return value.flatMap((part, index) => schemaFaults(part, [...here, index]))
    if (ONE_SCHEMA.has(keyword)) return schemaFaults(value, here)
    if (SCHEMAS_BY_NAME.has(keyword) && typeof value === 'object' && value !== null)
      return Object.entries(value).flatMap(([name, part]) => schemaFaults(part, [...here, name]))
    return []
  })
}

function isAtMost(limit: unknown, most: number): boolean {
  return typeof limit === 'number' && limit <= most
}

function patternFault(pattern: unknown, maxLength: unknown): string | null {
  if (!isAtMost(maxLength, MAX_PATTERN_TEXT))
    return `needs maxLength of at most ${MAX_PATTERN_TEXT} beside it`
  return typeof pattern === 'string' && isSlow(pattern)
    ? `repeats a group that repeats or chooses, refers back to a group, or has more than ${MAX_UNBOUNDED} open repetitions: a text could keep it busy`
    : null
}

/** Whether matching could take long: a repeated group that itself repeats or chooses, a back-reference, or many open repetitions. */
function isSlow(pattern: string): boolean {
  /** For each open group: it repeats or chooses. */
  const varies = [false]
  let unbounded = 0
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
        // As of `(?:`, which is no quantifier.
        if (pattern[at + 1] === '?') at += 1
        break
      case ')':
        ended = varies.pop() ?? false
        if (ended) varies[varies.length - 1] = true
        break
      case '|':
        varies[varies.length - 1] = true
        break
      case '?':
        if (!isLazy) varies[varies.length - 1] = true
        break
      case '*':
      case '+':
      case '{': {
        if (hasEnded) return true
        const end = pattern[at] === '{' ? pattern.indexOf('}', at) : at
        if (pattern[at] !== '{' || pattern.slice(at, end).includes(',')) unbounded += 1
        varies[varies.length - 1] = true
        quantified = true
        at = Math.max(at, end)
      }
    }
  }
  return unbounded > MAX_UNBOUNDED
}

function endOfClass(pattern: string, start: number): number {
  let end = start + 1
  while (end < pattern.length && pattern[end] !== ']') end += pattern[end] === '\\' ? 2 : 1
  return end
}
