import t from 'tap'
import { compileBodySchema } from '../../src/config/operation.ts'
import { exampleOf } from '../../src/proxy/example.ts'

const tree = {
  type: 'object',
  required: ['name'],
  properties: { name: { type: 'string' }, children: { type: 'array', items: { $ref: '#/$defs/tree' } } },
}

t.test('an example is a value that the schema accepts, with every member that it describes', async (t) => {
  for (const [schema, members] of [
    [{ type: 'object' }, ''],
    [{ type: 'object', required: ['id'], properties: { id: { type: 'integer', minimum: 7 } } }, 'id'],
    [{ properties: { level: { type: 'number', maximum: 0.5 }, on: { type: 'boolean' } } }, 'level on'],
    [{ properties: { code: { enum: ['b'] }, kind: { const: 3 }, none: { type: 'null' } } }, 'code kind none'],
    [
      {
        properties: {
          a: { type: 'string', minLength: 12, maxLength: 12 },
          b: { maxLength: 2, type: 'string' },
        },
      },
      'a b',
    ],
    [{ properties: { list: { type: 'array', minItems: 1, items: { type: ['integer', 'null'] } } } }, 'list'],
    [{ properties: { none: { type: 'array', maxItems: 0 }, any: true } }, 'none any'],
    [{ required: ['more'], additionalProperties: { type: 'integer' } }, 'more'],
    [{ properties: { top: { $ref: '#/$defs/tree' } }, $defs: { tree } }, 'top'],
    [
      { properties: { code: { type: 'string', maxLength: 9, pattern: '^[A-Z]+$', examples: ['LAB'] } } },
      'code',
    ],
  ] as const) {
    const whole = { type: 'object', ...schema }
    const example = exampleOf(whole) as object
    t.equal(Object.keys(example).join(' '), members)
    t.ok(compileBodySchema(whole)(example), JSON.stringify([schema, example]))
  }
})

t.test('there is no example of a schema with keywords that it does not follow', async (t) => {
  const self = { type: 'object', required: ['next'], properties: { next: { $ref: '#' } } }
  for (const schema of [
    { properties: { code: { type: 'string', maxLength: 9, pattern: '^[A-Z]+$' } } },
    { type: 'object', minProperties: 1 },
    { properties: { pair: { type: 'array', minItems: 2 } } },
    { properties: { never: false } },
    self,
  ])
    t.equal(exampleOf(schema), undefined, JSON.stringify(schema))
})
