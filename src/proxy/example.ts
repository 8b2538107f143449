import { schemaAt } from '../config/operation-schema.ts'
import { isObject } from '../json.ts'

/** Keywords that an example can keep, and those that demand nothing. */
const KNOWN = new Set([
  ...[
    'type',
    'properties',
    'required',
    'additionalProperties',
    'items',
    'minItems',
    'maxItems',
    'uniqueItems',
  ],
  ...['enum', 'const', 'examples', 'minimum', 'maximum', 'minLength', 'maxLength', '$ref'],
  ...['title', 'description', '$comment', '$defs', 'definitions', '$id', '$schema'],
])

type Part = Record<string, unknown>

/** Of values inside each other. */
const MAX_DEPTH = 8

/** A schema that no example of it is found for. */
class Unknown extends Error {}

/**
 * A value that the JSON Schema accepts, with every described member, for documents; undefined where the schema has keywords
 * that are not followed here, such as `pattern`: its own `examples` then show one.
 */
export function exampleOf(schema: object): unknown {
  try {
    return makeValue(schema, 0)
  } catch (error) {
    if (error instanceof Unknown) return undefined
    throw error
  }

  function makeValue(part: unknown, depth: number): unknown {
    if (part === true) return 'text'
    if (!isObject(part) || depth > MAX_DEPTH) throw new Unknown()
    if (Array.isArray(part.examples) && part.examples.length > 0) return part.examples[0]
    if (Object.keys(part).some((keyword) => !KNOWN.has(keyword))) throw new Unknown()
    if ('const' in part) return part.const
    if (Array.isArray(part.enum)) return part.enum[0]
    if (typeof part.$ref === 'string') return makeValue(schemaAt(schema, part.$ref), depth + 1)
    const [type = 'properties' in part ? 'object' : 'string'] = [part.type].flat()
    switch (type) {
      case 'object':
        return objectOf(part, depth)
      case 'array':
        return listOf(part, depth)
      case 'string':
        return textOf(part)
      case 'integer':
        return Math.ceil(numberOf(part))
      case 'number':
        return numberOf(part)
      default:
        return type === 'boolean' ? true : null
    }
  }

  function objectOf({ properties, required, additionalProperties }: Part, depth: number): object {
    const members = isObject(properties) ? properties : {}
    const needed = Array.isArray(required) ? (required as string[]) : []
    // The optional members of a schema that holds itself end here.
    const names = depth > MAX_DEPTH / 2 ? needed : [...new Set([...Object.keys(members), ...needed])]
    const schemaOf = (name: string) =>
      Object.hasOwn(members, name) ? members[name] : (additionalProperties ?? true)
    return Object.fromEntries(names.map((name) => [name, makeValue(schemaOf(name), depth + 1)]))
  }

  function listOf({ items = true, minItems = 0, maxItems }: Part, depth: number): unknown[] {
    if (Number(minItems) > 1) throw new Unknown()
    if (maxItems === 0 || (minItems === 0 && depth > MAX_DEPTH / 2)) return []
    return [makeValue(items, depth + 1)]
  }

  function numberOf({
    minimum = Number.NEGATIVE_INFINITY,
    maximum = Number.POSITIVE_INFINITY,
  }: Part): number {
    return Math.min(Math.max(1, Number(minimum)), Number(maximum))
  }

  function textOf({ minLength = 0, maxLength = 512 }: Part): string {
    return 'text'.padEnd(Number(minLength), ' text').slice(0, Number(maxLength))
  }
}
