import { isObject, RESERVED_NAMES } from '../../src/json.ts'

/** What was seen of the values in one place of JSON responses. */
export interface Shape {
  readonly kinds: Set<Kind>
  /** Of objects, by name. */
  readonly members: Map<string, Member>
  objects: number
  /** Of arrays, and of objects whose names are ids. */
  items: Shape | null
  entries: Shape | null
}

interface Member {
  readonly shape: Shape
  /** In how many of the objects. */
  times: number
}

type Kind = 'null' | 'boolean' | 'integer' | 'number' | 'string' | 'array' | 'object'

/** Objects and arrays inside each other that are looked at: the file permits schemas of a limited depth. */
const MAX_DEPTH = 10
const MAX_MEMBERS = 200
/** Of an array: the others look the same. */
const MAX_ITEMS = 1_000
/** A name that is a value: an id or a date. */
const VALUE = /^(?:\d[\d.:TZ-]*|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/i

export function newShape(): Shape {
  return { kinds: new Set(), members: new Map(), objects: 0, items: null, entries: null }
}

/** Adds one more value of this place. */
export function see(shape: Shape, value: unknown, depth = 0): void {
  shape.kinds.add(kindOf(value))
  if (depth >= MAX_DEPTH) return
  if (Array.isArray(value)) {
    shape.items ??= newShape()
    for (const item of value.slice(0, MAX_ITEMS)) see(shape.items, item, depth + 1)
  } else if (isObject(value)) seeMembers(shape, value, depth)
}

function seeMembers(shape: Shape, value: Record<string, unknown>, depth: number): void {
  const names = Object.keys(value)
  shape.objects += 1
  if (names.length > 0 && names.every((name) => VALUE.test(name))) {
    shape.entries ??= newShape()
    for (const name of names) see(shape.entries, value[name], depth + 1)
    return
  }
  for (const name of names) {
    if (RESERVED_NAMES.has(name)) continue
    let member = shape.members.get(name)
    if (member === undefined) {
      if (shape.members.size >= MAX_MEMBERS) continue
      member = { shape: newShape(), times: 0 }
      shape.members.set(name, member)
    }
    member.times += 1
    see(member.shape, value[name], depth + 1)
  }
}

function kindOf(value: unknown): Kind {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  const type = typeof value
  if (type === 'number') return Number.isInteger(value) ? 'integer' : 'number'
  return type === 'boolean' || type === 'string' ? type : 'object'
}

/** A JSON Schema that all values seen fulfil. A member is required if each object had it. */
export function schemaOf(shape: Shape): Record<string, unknown> {
  const kinds = [...shape.kinds].filter((kind) => kind !== 'integer' || !shape.kinds.has('number'))
  // Where nothing but null was seen, anything may come.
  if (kinds.every((kind) => kind === 'null')) return {}
  const schema: Record<string, unknown> = { type: kinds.length === 1 ? kinds[0] : kinds }
  if (shape.items !== null) schema.items = schemaOf(shape.items)
  if (shape.entries !== null) schema.additionalProperties = schemaOf(shape.entries)
  if (shape.members.size === 0) return schema
  const required = [...shape.members].flatMap(([name, { times }]) => (times === shape.objects ? [name] : []))
  if (required.length > 0) schema.required = required
  schema.properties = Object.fromEntries(
    [...shape.members].map(([name, member]) => [name, schemaOf(member.shape)]),
  )
  return schema
}
