/** What parsing a JSON text hides, or what writing it again would change. */
interface JsonFault {
  readonly kind: 'repeated' | 'reserved' | 'inexact' | 'deep'
  /** Of the member or element (RFC 6901). */
  readonly pointer: string
}

interface OpenValue {
  /** The members so far; null in an array. */
  readonly names: Set<string> | null
  /** The current member or element. */
  key: string | number
}

/** Names that change an object's prototype where another program assigns members one by one. */
export const RESERVED_NAMES: ReadonlySet<string> = new Set(['__proto__', 'constructor'])

/**
 * Faults of a text that `JSON.parse` accepts: a member that is there twice, a member `__proto__` or `constructor`, a
 * number that `JSON.stringify` would write with another value, more than `maxDepth` values inside each other (then
 * nothing after it is read).
 */
export function* jsonFaults(text: string, maxDepth = Number.POSITIVE_INFINITY): Generator<JsonFault> {
  const open: OpenValue[] = []
  let expectsName = false
  let at = 0
  while (at < text.length) {
    const top = open.at(-1)
    const char = text[at]!
    switch (char) {
      case '{':
      case '[':
        open.push(char === '{' ? { names: new Set(), key: '' } : { names: null, key: 0 })
        if (open.length > maxDepth) return yield { kind: 'deep', pointer: pointerTo(open.slice(0, -1)) }
        expectsName = char === '{'
        at += 1
        break
      case '}':
      case ']':
        open.pop()
        expectsName = false
        at += 1
        break
      case ',':
        if (top?.names === null) top.key = Number(top.key) + 1
        else expectsName = true
        at += 1
        break
      case '"': {
        const end = endOfString(text, at)
        if (expectsName && top?.names) {
          const name = JSON.parse(text.slice(at, end)) as string
          top.key = name
          if (top.names.has(name)) yield { kind: 'repeated', pointer: pointerTo(open) }
          if (RESERVED_NAMES.has(name)) yield { kind: 'reserved', pointer: pointerTo(open) }
          top.names.add(name)
          expectsName = false
        }
        at = end
        break
      }
      default: {
        NUMBER.lastIndex = at
        const [number] = NUMBER.exec(text) ?? []
        if (number !== undefined && !isExact(number)) yield { kind: 'inexact', pointer: pointerTo(open) }
        at += number?.length ?? 1
      }
    }
  }
}

const NUMBER = /-?\d[\d.eE+-]*/y

function endOfString(text: string, start: number): number {
  let end = start + 1
  while (text[end] !== '"') end += text[end] === '\\' ? 2 : 1
  return end + 1
}

/** A JSON pointer (RFC 6901), '' for the whole. */
function pointerTo(open: readonly OpenValue[]): string {
  return jsonPointer(...open.map(({ key }) => key))
}

/** The JSON pointer to a value by the names and indexes that lead to it (RFC 6901). */
export function jsonPointer(...path: readonly (string | number)[]): string {
  return path.map((key) => `/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('')
}

/** The members and indexes that a JSON pointer (RFC 6901) names; none for '', the whole. */
export function namesIn(pointer: string): string[] {
  if (pointer === '') return []
  return pointer
    .slice(1)
    .split('/')
    .map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'))
}

/** Decimal digits that every double keeps. */
const SAFE_DIGITS = 15

function isExact(text: string): boolean {
  const value = Number(text)
  if (!Number.isFinite(value) || Math.abs(value) > Number.MAX_SAFE_INTEGER) return false
  const { digits, exponent } = decimal(text)
  const written = decimal(String(value))
  if (digits !== written.digits || exponent !== written.exponent) return false
  return digits.length <= SAFE_DIGITS || /^-?\d+$/.test(text)
}

/** A number as `0.digits` times ten to `exponent`, without zeros at either end. */
function decimal(text: string): { digits: string; exponent: number } {
  const [, whole = '', fraction = '', power = '0'] = /^-?(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(text) ?? []
  const significant = (whole + fraction).replace(/^0+/, '')
  let end = significant.length
  while (significant[end - 1] === '0') end -= 1
  const digits = significant.slice(0, end)
  if (digits === '') return { digits, exponent: 0 }
  return { digits, exponent: significant.length - fraction.length + Number(power) }
}

const LITERALS = /"[^"\\]*(?:\\.[^"\\]*)*"?|-?\d[\d.eE+-]*/g

/**
 * The text or the integer to which these members and indexes lead in a JSON text, an integer as its digits: numbers of
 * JavaScript lose those of a long one. null for another value or none. Throws for a text that is no JSON.
 */
export function jsonScalarAt(
  text: string,
  path: readonly string[],
): { kind: 'text' | 'integer'; value: string } | null {
  JSON.parse(text)
  const tagged = text.replace(LITERALS, (literal) =>
    literal.startsWith('"') ? `"t${literal.slice(1)}` : `"n${literal}"`,
  )
  let value: unknown = JSON.parse(tagged)
  for (const name of path) {
    if (typeof value !== 'object' || value === null) return null
    const key = Array.isArray(value) ? name : `t${name}`
    value = Object.hasOwn(value, key) ? (value as Record<string, unknown>)[key] : null
  }
  if (typeof value !== 'string') return null
  const [tag, content] = [value[0], value.slice(1)]
  if (tag === 't') return { kind: 'text', value: content }
  return /^-?\d+$/.test(content) ? { kind: 'integer', value: content } : null
}

/** The object that a text of JSON is; null for any other text. */
export function jsonObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : null
  } catch {
    // A web page, or half of a response.
    return null
  }
}

/** Whether a value of JSON is an object: no array, and not null. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
