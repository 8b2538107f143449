import { Ajv } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import t from 'tap'
import { componentsOf } from '../../src/proxy/documented-schema.ts'

const text = { type: 'string' }
const at = (name: string) => ({ $ref: `#/components/schemas/${name}` })

t.test('a definition is a component of its own, under a name that OpenAPI permits', async (t) => {
  const definitions = { 'a b': text, 'a/b': { type: 'integer' }, 'List<Site>': true, unused: text }
  const components = componentsOf('ABody', {
    properties: {
      ...{ space: { $ref: '#/definitions/a%20b' }, slash: { $ref: '#/definitions/a~1b' } },
      ...{ list: { $ref: '#/definitions/List%3CSite%3E' }, tree: { $ref: '#/properties/in/$defs/tree' } },
      ...{ again: { $ref: '#' }, 'größe~/': { $ref: '#/properties/space' } },
      ...{ part: { $ref: '#/properties/gr%C3%B6%C3%9Fe~0~1' }, own: { $ref: '#/own/0' } },
      in: { $defs: { tree: { properties: { child: { $ref: '#/properties/in/$defs/tree' } } } } },
    },
    ...{ definitions, own: [{ const: 7 }] },
  })
  t.strictSame(components, {
    ABody: {
      properties: {
        ...{ space: at('ABody-a_b'), slash: at('ABody-a_b-1'), list: at('ABody-List_Site_') },
        ...{ tree: at('ABody-tree'), again: at('ABody') },
        ...{ 'größe~/': at('ABody/properties/space'), in: {} },
        ...{ part: at('ABody/properties/gr%C3%B6%C3%9Fe~0~1'), own: at('ABody-0') },
      },
      own: [{ const: 7 }],
    },
    'ABody-a_b': text,
    'ABody-a_b-1': { type: 'integer' },
    'ABody-List_Site_': true,
    'ABody-tree': { properties: { child: at('ABody-tree') } },
    'ABody-0': { const: 7 },
  })
})

t.test('names and values are no keywords', async (t) => {
  const values = [{ $ref: '#/none', nullable: true, items: [1], definitions: {} }]
  const schema = {
    properties: {
      $ref: text,
      nullable: { enum: values },
      definitions: { const: values },
      dependencies: text,
    },
    ...{ examples: values, default: values },
  }
  t.strictSame(componentsOf('A', schema), { A: schema })
})

t.test('a schema of draft-07 accepts the same in the document, whose schemas are of 2020-12', async (t) => {
  const schema = {
    $schema: 'http://json-schema.org/draft-07/schema#',
    type: 'object',
    properties: {
      pair: { type: 'array', items: [text, { type: 'integer' }], minItems: 2, additionalItems: text },
      closed: { type: 'array', items: [text], minItems: 1, additionalItems: false },
      list: { type: 'array', items: { $ref: '#/properties/pair/items/1' }, additionalItems: false },
      ...{ more: { $ref: '#/properties/pair/additionalItems' }, deep: { $ref: '#/dependencies/a' } },
      ...{ a: { type: 'string', nullable: true }, b: {}, c: {} },
    },
    dependencies: { a: { type: 'object', required: ['b'] }, c: ['a', 'b'] },
  }
  const components = componentsOf('A', schema)
  const shown = components.A as { properties: Record<string, object> }
  t.match(shown, {
    ...{ $schema: undefined, dependencies: undefined, dependentRequired: { c: ['a', 'b'] } },
    dependentSchemas: { a: { required: ['b'] } },
  })
  t.match(shown.properties, {
    closed: { prefixItems: [text], items: false, additionalItems: undefined },
    ...{ a: { type: ['string', 'null'], nullable: undefined }, deep: at('A/dependentSchemas/a') },
    ...{ list: { items: at('A/properties/pair/prefixItems/1') }, more: at('A/properties/pair/items') },
  })
  const ajv = new Ajv2020({ strict: false })
  const documented = ajv.compile({ ...at('A'), components: { schemas: components } })
  const checked = new Ajv({ strict: false }).compile(schema)
  for (const [value, sound] of [
    [{ pair: ['a', 1, 'b'], closed: ['a'], list: [1, 2], more: 'a' }, true],
    [{ a: null, b: 1, c: 1, deep: { b: 1 } }, true],
    [{ pair: ['a', 1, 2] }, false],
    [{ pair: ['a', 'b'] }, false],
    [{ closed: ['a', 'b'] }, false],
    [{ list: ['a'] }, false],
    [{ more: 1 }, false],
    [{ deep: {} }, false],
    [{ a: 'a' }, false],
    [{ c: 1, b: 1 }, false],
  ] as const) {
    t.equal(checked(value), sound, JSON.stringify(value))
    t.equal(documented(value), sound, `${JSON.stringify(value)} in the document`)
  }
})
