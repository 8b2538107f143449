import { type QueryType, type QueryValue, sameName } from '../../src/config/operation.ts'
import { MAX_LIST } from '../../src/config/operations-file.ts'
import type { Sample } from './sample.ts'

/** Samples of one operation, and what is guessed from them. */
export interface Pattern {
  readonly samples: readonly Sample[]
  /** As a file declares it. */
  readonly path: string
  readonly account: 'path' | 'none'
  readonly parameters: Readonly<Record<string, 'integer' | 'id'>>
  readonly query: Readonly<Record<string, QueryType>>
  /** What its name is made of: what is read, and whose it is. */
  readonly noun: string
  /** Each a part of a sentence. */
  readonly guesses: readonly string[]
}

interface Account {
  readonly default: string | null
  readonly allowed: ReadonlySet<string> | null
}

/** One segment of a sample: a text that stays, or what it is guessed to stand for. */
type Part = { literal: string } | { type: 'account' | 'integer' | 'id'; sample: string }

/** The operations of these samples: those that differ in ids or in the case of letters alone are one. */
export function patternsOf(samples: readonly Sample[], account: Account): Pattern[] {
  const split = samples.map((sample) => ({ sample, parts: partsOf(sample, account) }))
  const groups = new Map<string, { sample: Sample; parts: Part[] }[]>()
  for (const each of split) {
    const parts = each.parts.map((part, at) => (differs(each, split, at) ? asId(part) : part))
    const shape = parts.map(keyOf).join('/')
    groups.set(shape, [...(groups.get(shape) ?? []), { sample: each.sample, parts }])
  }
  return [...groups.values()].map((group) =>
    patternOf(
      group.map(({ sample }) => sample),
      joined(group.map(({ parts }) => parts)),
      account,
    ),
  )
}

function partsOf({ segments }: Sample, account: Account): Part[] {
  return segments.map((segment, at) => {
    if (at === 0 && isAccount(segments, account)) return { type: 'account', sample: segment }
    const type = typeOf(segment)
    return type === null ? { literal: segment } : { type, sample: segment }
  })
}

/** Without a code in the environment, capitals are taken for one. */
function isAccount([first = '', ...others]: readonly string[], { default: own, allowed }: Account): boolean {
  if (own !== null || allowed !== null) return first === own || (allowed?.has(first) ?? false)
  return others.length > 0 && /^[A-Z][A-Z0-9_.~-]*$/.test(first)
}

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

function typeOf(segment: string): 'integer' | 'id' | null {
  if (/^(?:0|[1-9]\d{0,15})$/.test(segment) && Number.isSafeInteger(Number(segment))) return 'integer'
  const isMixed = segment.length >= 16 && /\d/.test(segment) && /^[\w-]+$/.test(segment)
  return /^\d/.test(segment) || UUID.test(segment) || isMixed ? 'id' : null
}

/** Whether another sample has other text with a digit here, and is the same otherwise. */
function differs(one: { parts: Part[] }, all: readonly { parts: Part[] }[], at: number): boolean {
  const part = one.parts[at]!
  if (!('literal' in part) || !/\d/.test(part.literal)) return false
  return all.some(({ parts }) => {
    const other = parts[at]
    if (parts.length !== one.parts.length || other === undefined) return false
    const isOther = 'literal' in other && keyOf(other) !== keyOf(part) && /\d/.test(other.literal)
    return isOther && parts.every((each, index) => index === at || keyOf(each) === keyOf(one.parts[index]!))
  })
}

/** The same for parts that one operation can have in this place. The platform may read paths in any case. */
function keyOf(part: Part): string {
  if ('literal' in part) return part.literal.toLowerCase()
  return part.type === 'account' ? '{wac}' : '{}'
}

function asId(part: Part): Part {
  return 'literal' in part ? { type: 'id', sample: part.literal } : part
}

/** One list of parts for a group: an id where not all are integers. */
function joined([first = [], ...others]: readonly Part[][]): Part[] {
  return first.map((part, at) =>
    'type' in part && others.some((parts) => 'type' in parts[at]! && parts[at].type === 'id')
      ? { ...part, type: 'id' }
      : part,
  )
}

function patternOf(samples: readonly Sample[], parts: readonly Part[], { default: own }: Account): Pattern {
  const guesses: string[] = []
  const query = queryTypesOf(samples)
  const taken = new Set(['wac', ...Object.keys(query).map(sameName)])
  const parameters: Record<string, 'integer' | 'id'> = {}
  let owner = ''
  let noun = ''
  const path = parts.map((part) => {
    if ('literal' in part) {
      noun = owner + pascal(part.literal)
      return `/${part.literal}`
    }
    if (part.type === 'account') {
      if (own === null) guesses.push(`${part.sample} is an account code`)
      return '/{wac}'
    }
    owner = singular(noun)
    noun = owner
    const name = freeName(`${camel(owner)}Id`, taken)
    parameters[name] = part.type
    guesses.push(`{${name}} is ${part.type === 'id' ? 'an id' : 'an integer'}, from ${part.sample}`)
    return `/{${name}}`
  })
  for (const [name, type] of Object.entries(query))
    guesses.push(`${name} is ${typeof type === 'string' ? `of the type ${type}` : 'a list'}`)
  const account =
    parts[0] !== undefined && 'type' in parts[0] && parts[0].type === 'account' ? 'path' : 'none'
  return { samples, path: path.join(''), account, parameters, query, noun, guesses }
}

/** The longest name that a file may give an operation or a parameter. */
const MAX_NAME = 40

/** This name, with a number where `taken` has it, of the length that a file permits. Adds it to `taken`, by `sameName`. */
export function freeName(wish: string, taken: Set<string>): string {
  for (let number = 1; ; number += 1) {
    const end = number === 1 ? '' : String(number)
    const name = wish.slice(0, MAX_NAME - end.length) + end
    if (taken.has(sameName(name))) continue
    taken.add(sameName(name))
    return name
  }
}

/** A file names a parameter once, whatever the case of its letters: the first spelling stays. */
function queryTypesOf(samples: readonly Sample[]): Pattern['query'] {
  const found = new Map<string, { name: string; values: string[]; isList: boolean }>()
  for (const { query } of samples) {
    const here = new Set<string>()
    for (const [name, value] of query) {
      const key = name.toLowerCase()
      const parameter = found.get(key) ?? { name, values: [], isList: false }
      parameter.values.push(value)
      parameter.isList ||= here.has(key)
      found.set(key, parameter)
      here.add(key)
    }
  }
  return Object.fromEntries(
    [...found.values()].map(({ name, values, isList }) => {
      const type = typeOfValues(values)
      return [name, isList ? { list: type, max: MAX_LIST } : type]
    }),
  )
}

function typeOfValues(values: readonly string[]): QueryValue {
  const all = (test: (value: string) => boolean): boolean => values.every(test)
  if (all((value) => /^(?:0|-?[1-9]\d{0,15})$/.test(value) && Number.isSafeInteger(Number(value))))
    return 'integer'
  if (all((value) => /^-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?$/.test(value))) return 'number'
  return all((value) => value === 'true' || value === 'false') ? 'boolean' : 'text'
}

function pascal(text: string): string {
  return text
    .split(/[^A-Za-z0-9]+/)
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join('')
}

function camel(text: string): string {
  if (text === '' || /^\d/.test(text)) return `the${text}`
  return /^[A-Z0-9]+$/.test(text) ? text.toLowerCase() : text.charAt(0).toLowerCase() + text.slice(1)
}

function singular(text: string): string {
  if (/ies$/.test(text) && text.length > 4) return `${text.slice(0, -3)}y`
  return /s$/.test(text) && !/(?:ss|us|is)$/.test(text) ? text.slice(0, -1) : text
}
