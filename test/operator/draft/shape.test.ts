import { Ajv } from 'ajv'
import fc from 'fast-check'
import t from 'tap'
import { newShape, schemaOf, see } from '../../../operator/draft/shape.ts'
import { readOperations } from '../../../src/config/operations-file.ts'

function schemaFor(...values: unknown[]): Record<string, unknown> {
  const shape = newShape()
  for (const value of values) see(shape, value)
  return schemaOf(shape)
}

t.test(
  'a schema says what was seen: nested objects, lists, what may be null and what may be absent',
  async (t) => {
    const rows = [
      { id: 1, name: 'a', level: 2.5, tags: ['x'], place: { lat: 1, lon: 2.5 }, note: null },
      { id: 2, name: 'b', level: 3, tags: [], place: { lat: 1.5 }, note: 'n', more: true },
    ]
    t.strictSame(schemaFor({ rows }), {
      type: 'object',
      required: ['rows'],
      properties: {
        rows: {
          type: 'array',
          items: {
            type: 'object',
            required: ['id', 'name', 'level', 'tags', 'place', 'note'],
            properties: {
              id: { type: 'integer' },
              name: { type: 'string' },
              level: { type: 'number' },
              tags: { type: 'array', items: { type: 'string' } },
              place: {
                type: 'object',
                required: ['lat'],
                properties: { lat: { type: 'number' }, lon: { type: 'number' } },
              },
              note: { type: ['null', 'string'] },
              more: { type: 'boolean' },
            },
          },
        },
      },
    })
    t.strictSame(schemaFor({ 7: { a: 1 }, 8: { a: null } }), {
      type: 'object',
      additionalProperties: {
        type: 'object',
        required: ['a'],
        properties: { a: { type: ['integer', 'null'] } },
      },
    })
    t.strictSame(schemaFor({ a: null }).properties, { a: {} })
    t.strictSame(schemaFor([]), { type: 'array', items: {} })
  },
)

t.test('every JSON has a schema that it fulfils and that a file of operations may declare', async (t) => {
  const ajv = new Ajv({ strict: false, ownProperties: true })
  fc.assert(
    fc.property(fc.array(fc.jsonValue({ maxDepth: 14 }), { minLength: 1, maxLength: 3 }), (values) => {
      const schema = schemaFor(...values)
      const check = ajv.compile(schema)
      for (const value of values) if (!check(value)) throw new Error(ajv.errorsText(check.errors))
      const GetThing = { method: 'GET', path: '/{wac}/thing', response: schema }
      const { faults } = readOperations(JSON.stringify({ operations: { GetThing } }))
      if (faults.length > 0) throw new Error(faults.join())
    }),
    // The same in each run: `npm run fuzz` is for chance.
    { seed: 1, numRuns: 200, examples: [[[{ valueOf: '' }, {}, null]]] },
  )
  const odd = JSON.parse('{"__proto__":1,"constructor":2,"$ref":"#/x","$id":"y","a":3}')
  t.strictSame(schemaFor(odd), {
    ...{ type: 'object', required: ['$ref', '$id', 'a'] },
    properties: { $ref: { type: 'string' }, $id: { type: 'string' }, a: { type: 'integer' } },
  })
})
