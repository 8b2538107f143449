import { pointerOf, schemaAt, schemasIn } from '../config/operation-schema.ts'
import { isObject, jsonPointer, namesIn } from '../json.ts'

type Part = Record<string, unknown>
type Path = readonly string[]

/**
 * A JSON Schema as components of the OpenAPI document: one of this name, and one for each definition that it refers to.
 * Schemas of OpenAPI 3.1 are of draft 2020-12, so keywords of draft-07 alone are translated.
 */
export function componentsOf(name: string, root: object): Record<string, unknown> {
  const components: Record<string, unknown> = {}
  /** Where the document has a part of the schema: both as JSON pointers. */
  const places = new Map<string, string>()
  const references: { $ref: string }[] = []
  add(name, root, [])
  // A component that is added here has references too, which are still to come.
  for (const reference of references) reference.$ref = shownReference(reference.$ref)
  return components

  function add(component: string, schema: unknown, from: Path): void {
    components[component] = {}
    components[component] = copyOf(schema, from, ['components', 'schemas', component])
  }

  function shownReference(reference: string): string {
    const path = namesIn(pointerOf(reference) ?? '')
    const pointer = jsonPointer(...path)
    if (!places.has(pointer)) add(freeName(path.at(-1)!), schemaAt(root, reference), path)
    return `#${places.get(pointer)!.split('/').map(encodeURIComponent).join('/')}`
  }

  /** OpenAPI permits fewer characters than JSON Schema. */
  function freeName(definition: string): string {
    const wanted = `${name}-${definition.replace(/[^A-Za-z0-9._-]/g, '_')}`
    let free = wanted
    for (let count = 1; Object.hasOwn(components, free); count += 1) free = `${wanted}-${count}`
    return free
  }

  function copyOf(schema: unknown, from: Path, to: Path): unknown {
    places.set(jsonPointer(...from), jsonPointer(...to))
    if (!isObject(schema)) return schema
    const copy: Part = {}
    for (const [keyword, value] of Object.entries(schema)) {
      const shown = shownKeyword(keyword, schema)
      if (shown === null) continue
      const copies = schemasIn(keyword, value).map(([[, ...inner], part]): [Path, unknown] => [
        inner,
        copyOf(part, [...from, keyword, ...inner], [...to, shown, ...inner]),
      ])
      if (copies.length > 0) copy[shown] = joined(value, copies)
      else if (keyword !== 'dependencies') copy[shown] = value
      if (keyword === 'dependencies' && isObject(value)) {
        const required = Object.entries(value).filter(([, needed]) => Array.isArray(needed))
        if (required.length > 0) copy.dependentRequired = Object.fromEntries(required)
      }
    }
    if (typeof copy.$ref === 'string') references.push(copy as { $ref: string })
    if (schema.nullable === true && schema.type !== undefined)
      copy.type = [...new Set([schema.type, 'null'].flat())]
    return copy
  }
}

/** The keyword by which draft 2020-12 knows that of a schema; null for one that is not shown there. */
function shownKeyword(keyword: string, { items }: Part): string | null {
  switch (keyword) {
    // It is for the whole document.
    case '$schema':
    // Components of their own.
    case '$defs':
    case 'definitions':
    // A type of its own.
    case 'nullable':
      return null
    case 'items':
      return Array.isArray(items) ? 'prefixItems' : keyword
    case 'additionalItems':
      return Array.isArray(items) ? 'items' : null
    case 'dependencies':
      return 'dependentSchemas'
    default:
      return keyword
  }
}

/** The schemas that a keyword holds in the place of those in its value: one, a list, or some by their names. */
function joined(value: unknown, schemas: [inner: Path, schema: unknown][]): unknown {
  if (Array.isArray(value)) return schemas.map(([, schema]) => schema)
  const [[inner, only]] = schemas as [[Path, unknown]]
  return inner.length === 0 ? only : Object.fromEntries(schemas.map(([[name], schema]) => [name, schema]))
}
