import t, { type Test } from 'tap'
import { compileBodySchema } from '../../src/config/operation.ts'
import { readOperations } from '../../src/config/operations-file.ts'
import { codeBlocks } from '../helpers/documentation.ts'
import { configOf, type Env, faultsOf, warningsOf } from './environment.ts'

const GOOD = { method: 'GET', path: '/{wac}/things/{thingId}', parameters: { thingId: 'integer' } }
const WRITE = { ...GOOD, method: 'PUT', body: { any: true } }

const words = (text: string): string[] => text.split(' ')

/** The environment of a file with these operations, and whatever else it has. */
function fileOf(t: Test, operations: object, more: object = {}): Env {
  const folder = t.testdir({ 'operations.json': JSON.stringify({ operations, ...more }) })
  return { OPERATIONS_FILE: `${folder}/operations.json` }
}

const faultsIn = (operations: unknown): readonly string[] =>
  readOperations(JSON.stringify({ operations })).faults
/** Faults of a file with one operation `Read`. */
const faults = (change: object, base: object = GOOD) => faultsIn({ Read: { ...base, ...change } })
const schema = (value: object) => faults({ body: { schema: value } }, WRITE)

t.test('a member that JavaScript objects inherit is only there where the body has it', async (t) => {
  const check = compileBodySchema({ type: 'object', properties: { valueOf: { type: 'string' } } })
  t.ok(check({}))
  t.ok(check({ valueOf: 'a' }))
  t.notOk(check({ valueOf: 1 }))
  t.notOk(compileBodySchema({ type: 'object', required: ['toString'] })({}))
})

t.test('a sound file is read, with what it leaves out filled in', async (t) => {
  const { operations } = configOf(fileOf(t, { Read: GOOD }))
  t.strictSame(operations, [
    {
      name: 'Read',
      method: 'GET',
      segments: [{ parameter: 'wac' }, { literal: 'things' }, { parameter: 'thingId' }],
      account: 'path',
      parameters: { thingId: 'integer' },
      query: {},
      formats: ['JSON'],
      formatInQuery: true,
      body: null,
      response: null,
      application: false,
    },
  ])
  t.strictSame(configOf({}).operations, [])
})

t.test('what has no fault of its own is held against other variables at once', async (t) => {
  const none = { method: 'GET', path: '/WUM', account: 'none' }
  const operations = { Read: { ...none, formats: ['PNG'] }, Write: { method: 'TRACE', path: '/{wac}/x' } }
  const folder = t.testdir({ 'operations.json': JSON.stringify({ operations }) })
  const env = { OPERATIONS_FILE: `${folder}/operations.json`, WAC_ALLOWED: 'DEMO', PORT: 'many' }
  t.match([...faultsOf(env)].sort(), [
    /^OPERATIONS_FILE \/operations\/Read\/account must not be "none" while WAC_ALLOWED is set/,
    /^OPERATIONS_FILE \/operations\/Read\/formats must be a list/,
    /^OPERATIONS_FILE \/operations\/Write\/method must be one of/,
    /^PORT must be/,
  ])
})

t.test('every fault of the file is a fault of OPERATIONS_FILE with its JSON pointer', async (t) => {
  const text = JSON.stringify({ operations: { Read: { ...GOOD, method: 'TRACE' }, write: GOOD }, more: 1 })
  const folder = t.testdir({ 'faulty.json': text, 'broken.json': '{', 'list.json': '[]' })
  t.match(faultsOf({ OPERATIONS_FILE: `${folder}/faulty.json` }), [
    'OPERATIONS_FILE /more is not known',
    /^OPERATIONS_FILE \/operations\/Read\/method must be one of GET, POST/,
    /^OPERATIONS_FILE \/operations\/write must have a name/,
  ])
  t.match(faultsOf({ OPERATIONS_FILE: `${folder}/broken.json` }), [
    /^OPERATIONS_FILE must be a file of JSON, but is not: .*position 1/,
  ])
  t.match(faultsOf({ OPERATIONS_FILE: `${folder}/list.json` }), [/JSON object/])
  t.match(faultsOf({ OPERATIONS_FILE: `${folder}/none.json` }), [/can be read, but .* \(ENOENT\)/])
})

t.test('a repeated member of the file is a fault', async (t) => {
  const operation = JSON.stringify(GOOD)
  const { faults } = readOperations(`{"operations":{"Read":${operation},"Read":${operation}}}`)
  t.strictSame(faults, ['/operations/Read is there twice'])
})

t.test('a name has 1 to 40 letters and digits, a capital first, and is not built in', async (t) => {
  for (const name of ['', 'read', '1Read', 'Re-ad', 'R'.repeat(41), 'Réad'])
    t.match(faultsIn({ [name]: GOOD }), [/must have a name/], name)
  for (const name of ['GetFlux', 'UpdateSite']) t.match(faultsIn({ [name]: GOOD }), [/built in/], name)
  t.strictSame(faultsIn({ R: GOOD }), [])
  t.strictSame(faultsIn({ ['R'.repeat(40)]: GOOD }), [])
})

t.test('a file has at most 64 operations', async (t) => {
  const many = (count: number) =>
    Object.fromEntries(
      Array.from({ length: count }, (_, at) => [`Read${at}`, { method: 'GET', path: `/{wac}/list${at}` }]),
    )
  t.strictSame(faultsIn(many(64)), [])
  t.strictSame(faultsIn(many(65)), ['/operations must have at most 64 operations, but has 65'])
})

t.test('a path has whole segments, each a literal or one parameter', async (t) => {
  const path = (value: unknown) => faults({ path: value, parameters: {} }).join('\n')
  for (const rest of words('a/ /a . .. a%20b a?b é a:b a* {} {1} {a-b} a;b a#b x{y} {y}x').concat('a b'))
    t.match(path(`/{wac}/${rest}`), /\/path has a segment/, rest)
  for (const value of ['', 'a', 'https://evil.test/a', 7, null, undefined])
    t.match(path(value), /\/path must be/)
  t.match(path('/{wac}'), /must have a segment that is no parameter/)
  t.match(path('/{wac}/a/{wac}'), /twice|first segment alone/)
  t.match(faults({ path: '/{wac}/a/{b}/{b}', parameters: { b: 'id' } }).join(), /names \{b\} twice/)
  t.match(
    faults({ path: '/{wac}/a/{aB}/{a_b}', parameters: { aB: 'id', a_b: 'id' } }).join(),
    /two parameters like/,
  )
  t.match(faults({ path: '/{wac}/a/{WAC}', parameters: { WAC: 'id' } }).join(), /besides \{wac\}/)
  t.strictSame(path('/{wac}/A-b_9.~'), '')
})

t.test('the account is the first segment, a member of the body, or none', async (t) => {
  t.match(faults({ path: '/a/{wac}', parameters: {} }), [/must begin with \/\{wac\}/])
  t.match(faults({ path: '/a', parameters: {} }), [/must begin with/])
  t.match(faults({ account: 'none' }), [/must not have \{wac\}/])
  t.match(faults({ account: 'header' }), [/\/account must be "path", "body" or "none"/])
  t.match(faults({ account: 'body', path: '/a', parameters: {} }), [/the operation has no body/])
  t.strictSame(faults({ account: 'none', path: '/a', parameters: {} }), [])
  t.strictSame(faults({ account: 'body', path: '/a', parameters: {} }, WRITE), [])
  t.match(faults({ account: 'none', path: '/a/{w_ac}', parameters: { w_ac: 'id' } }), [/besides \{wac\}/])
})

t.test('each parameter of the path has a type, and no other is there', async (t) => {
  t.match(faults({ parameters: {} }), [/lacks the type of \{thingId\}/])
  t.match(faults({ parameters: { thingId: 'id', other: 'id' } }), [/\/parameters\/other is no parameter/])
  const enums = [[], ['a', 'a'], ['..'], ['a/b'], [1]].map((values) => ({ enum: values }))
  for (const type of ['text', 'number', ...enums, { enum: ['a'], x: 1 }, null])
    t.match(faults({ parameters: { thingId: type } }), [/must be "integer", "id" or/], JSON.stringify(type))
  for (const type of ['integer', 'id', { enum: ['a', 'b.~'] }])
    t.strictSame(faults({ parameters: { thingId: type } }), [], JSON.stringify(type))
})

t.test('a parameter of the query cannot have a name that means something to a platform', async (t) => {
  for (const name of [
    ...words('wac WAC format callback access_token oauth_token token bearer apikey api_key authsecret'),
    ...words('ss-id ss-pid ss-tok X-Http-Method-Override x-http-method x-method-override _method'),
  ])
    t.match(faults({ query: { [name]: 'text' } }).join('\n'), /cannot be declared/, name)
  t.match(faults({ query: { thingId: 'text' } }), [/has the name of/])
  t.match(faults({ query: { THING_ID: 'text' } }), [/has the name of/])
  const body = { set: { wType: 'X' }, schema: { type: 'object', properties: { name: { type: 'string' } } } }
  t.match(faults({ query: { wtype: 'text', Name: 'text' }, body }, WRITE), [
    /wtype has the name/,
    /Name has the name/,
  ])
  t.match(faults({ query: { a: 'text', A: 'text' } }), [/names a twice/])
  for (const name of ['', 'a b', 'ä', 'a&b'])
    t.match(faults({ query: { [name]: 'text' } }), [/must have a name/], name)
})

t.test('a parameter of the query has a known type', async (t) => {
  const integer = (...bounds: number[]) => ({ integer: bounds })
  const sound = [...words('integer number boolean text'), integer(1, 1000), integer(-5, -5)]
  for (const type of [...sound, { enum: ['a b', 'ü'] }])
    t.strictSame(faults({ query: { q: type } }), [], JSON.stringify(type))
  const faulty = ['id', 'string', integer(2, 1), integer(1), integer(1, 2, 3), integer(1, 1.5)]
  for (const type of [...faulty, { enum: [''] }, { enum: ['a\n'] }, { pattern: '.' }, 1])
    t.match(faults({ query: { q: type } }), [/must be "integer", \{"integer"/], JSON.stringify(type))
})

t.test('formats are those of the platform, each once', async (t) => {
  t.strictSame(faults({ formats: ['CSV', 'JSON'] }), [])
  t.strictSame(faults({ formats: 'any' }), [])
  for (const format of ['both', 'accept']) t.strictSame(faults({ format }), [])
  t.match(faults({ format: 'query' }), [/format must be "both" or "accept"/])
  t.match(faults({ formats: 'any', format: 'accept' }), [/format must be left out/])
  for (const formats of [[], ['JSON', 'JSON'], ['json'], ['HTML'], 'JSON', {}])
    t.match(faults({ formats }), [/must be a list of JSON, XML, CSV, JSV/], JSON.stringify(formats))
})

t.test('a body is for POST, PUT and PATCH, and has a schema or takes any object', async (t) => {
  for (const method of ['GET', 'DELETE'])
    t.match(faults({ method, body: 'any' }), [/is for POST, PUT and PATCH only/])
  for (const body of ['any', { any: true }, { any: true, set: {} }, { schema: { type: 'object' } }])
    t.strictSame(faults({ body }, WRITE), [], JSON.stringify(body))
  const both = { any: true, schema: { type: 'object' } }
  for (const body of ['all', {}, { any: false }, both, { schema: 'x' }, null, []])
    t.ok(faults({ body }, WRITE).length > 0, JSON.stringify(body))
})

t.test('an upload names its types and its limit', async (t) => {
  const upload = { types: ['image/png', 'multipart/form-data'], limit: 1_000 }
  t.strictSame(faults({ body: upload }, WRITE), [])
  for (const [change, fault] of [
    [{ types: [] }, /body\/types must be a list of media types/],
    [{ types: ['image/*'] }, /body\/types/],
    [{ types: ['Image/PNG'] }, /body\/types/],
    [{ types: ['a/b', 'a/b'] }, /body\/types/],
    [{ types: ['a/b; c=d'] }, /body\/types/],
    [{ limit: 0 }, /body\/limit must be a whole number of bytes, from 1 to 104857600/],
    [{ limit: 104_857_601 }, /body\/limit/],
    [{ limit: undefined }, /body\/limit/],
    [{ set: {} }, /body\/set is not known/],
  ] as const)
    t.match(faults({ body: { ...upload, ...change } }, WRITE), [fault], JSON.stringify(change))
  const inBody = { method: 'POST', path: '/things', account: 'body', body: upload }
  t.match(faultsIn({ Send: inBody }), [/account must not be "body" for an upload/])
})

t.test('a response is a JSON Schema for documents, whose references stay inside', async (t) => {
  const node = { type: 'object', properties: { next: { $ref: '#/$defs/node' }, at: { format: 'date-time' } } }
  t.strictSame(faults({ response: { $ref: '#/$defs/node', $defs: { node } } }), [])
  t.strictSame(faults({ response: { type: 'array', items: { type: 'string', pattern: '^(a+)+$' } } }), [])
  for (const [response, fault] of [
    ['Site', /response must be a JSON Schema/],
    [{ type: 'text' }, /response\/type must be equal to one of/],
    [{ $ref: '#/$defs/none' }, /response\/\$ref must be # and the JSON pointer of a schema in this schema/],
    [{ $ref: '#/required/0', required: ['a'] }, /response\/\$ref must be #/],
    [{ $ref: '#/$defs/\ud800', $defs: { '\ud800': {} } }, /response\/\$ref must be #/],
    [{ $defs: { a: { $ref: 5 } } }, /response\/\$defs\/a\/\$ref must be #/],
    [{ $defs: { a: null } }, /response\/\$defs\/a must be a JSON Schema: an object, true or false/],
    [{ $ref: '#/own/a', own: { a: { $ref: '#/none' } } }, /response\/own\/a\/\$ref must be #/],
    [{ items: { $ref: 'https://a.test/x' } }, /response\/items\/\$ref/],
    [{ $id: 'a' }, /response\/\$id is not accepted/],
  ] as const)
    t.match(faults({ response }), [fault], JSON.stringify(response))
})

t.test('what looks like a keyword in a name or a value of a schema is none', async (t) => {
  const values = [{ $ref: '#/none', $id: 'a', $schema: 'b' }, { $ref: 5 }]
  const members = { $ref: { type: 'string' }, $id: { type: 'string' }, $schema: { enum: values } }
  const value = { type: 'object', properties: { ...members, a: { const: values } }, examples: values }
  t.strictSame(faults({ response: { ...value, default: values[0] } }), [])
  t.strictSame(schema(value), [])
  t.ok(compileBodySchema(value)({ $ref: '1', $id: '1', $schema: values[1], a: values }))
  t.notOk(compileBodySchema(value)({ $ref: 1 }))
})

t.test('a list of a query has a type and a limit', async (t) => {
  const list = (list: unknown, max: unknown = 3, more: object = {}) =>
    faults({ query: { q: { list, max, ...more } } })
  for (const type of ['integer', 'text', { enum: ['a'] }, { integer: [0, 9] }]) t.strictSame(list(type), [])
  for (const max of [0, 101, 1.5, '3', null]) t.match(list('text', max), [/must be "integer"/], String(max))
  t.match(list('id'), [/must be "integer"/])
  t.match(list({ list: 'text', max: 2 }), [/must be "integer"/])
  t.match(list('text', 3, { min: 1 }), [/must be "integer"/])
})

t.test('a schema is one that Ajv checks whole', async (t) => {
  const text = { type: 'string' }
  for (const sound of [
    { properties: { a: { $ref: '#/definitions/a' } }, definitions: { a: text } },
    // Members of these names.
    { properties: { default: text, format: text } },
  ])
    t.strictSame(schema({ type: 'object', ...sound }), [], JSON.stringify(sound))
  for (const [value, pointer] of [
    [{ type: 'objekt' }, '/type'],
    [{ type: 'string' }, '/type'],
    [{ type: 'object', unknownKeyword: 1 }, '/unknownKeyword'],
    [{ type: 'object', properties: { a: { type: 'wrong' } } }, '/properties/a/type'],
    [{ type: 'object', properties: { a: { type: 'string', format: 'date-time' } } }, '/properties/a/format'],
    [{ type: 'object', properties: { a: { type: 'string', default: 'x' } } }, '/properties/a/default'],
    [{ type: 'object', properties: { a: { $ref: 'https://evil.test/schema' } } }, '/properties/a/$ref'],
    [{ type: 'object', properties: { a: { $ref: '#/nowhere' } } }, '/properties/a/$ref'],
    [{ type: 'object', $defs: { a: null } }, '/$defs/a'],
    [{ type: 'object', properties: { a: { $ref: '/properties/a' } } }, '/properties/a/$ref'],
    [{ type: 'object', properties: null }, '/properties'],
    [{ $id: 'urn:x', type: 'object' }, '/$id'],
    [{ type: 'object', patternProperties: { '^a': {} } }, '/patternProperties'],
    [
      { type: 'object', allOf: [{ properties: { a: { contentEncoding: 'base64' } } }] },
      '/allOf/0/properties/a/contentEncoding',
    ],
  ] as const) {
    const [fault, ...more] = schema(value)
    t.ok(fault?.startsWith(`/operations/Read/body/schema${pointer} `), `${JSON.stringify(value)}: ${fault}`)
    t.strictSame(more, [])
  }
  t.equal(schema({ type: 'object', bar: 1, properties: { a: { foo: 1, minLength: -1 } } }).length, 3, 'all')
})

t.test('a schema may name the draft that it was written for', async (t) => {
  for (const $schema of [
    ...words('http://json-schema.org/draft-07/schema# https://json-schema.org/draft-07/schema'),
    ...words('https://json-schema.org/draft/2020-12/schema https://json-schema.org/draft/2019-09/schema#'),
  ]) {
    const part = { $schema, type: 'object', properties: { a: { $schema, type: 'string' } } }
    t.strictSame(schema(part), [], $schema)
    t.strictSame(faults({ response: part }), [], $schema)
    t.notOk(compileBodySchema(part)({ a: 1 }), $schema)
  }
  const says = (pointer: string) =>
    new RegExp(`^/operations/Read/body/schema${pointer} must be that of draft-07`)
  for (const $schema of ['http://json-schema.org/draft-04/schema#', 'draft-07', '', 7, null]) {
    const [root, inner] = [says('/\\$schema'), says('/properties/a/\\$schema')]
    t.match(schema({ $schema, type: 'object' }), [root], String($schema))
    t.match(schema({ type: 'object', properties: { a: { $schema } } }), [inner], String($schema))
    t.match(schema({ $schema, type: 'object', foo: 1, bar: 1 }).length, 3, 'every fault is listed')
  }
  t.strictSame(faults({ response: { $schema: 'https://spec.openapis.org/oas/3.1/dialect/base' } }), [])
  t.match(faults({ response: { $schema: 7 } }), [/response\/\$schema must be string/])
})

t.test('a reference leads to a schema of the same schema, and not only to itself', async (t) => {
  const circle = (node: object) =>
    schema({ type: 'object', properties: { root: { $ref: '#/$defs/node' } }, $defs: { node } })
  const child = { child: { $ref: '#/$defs/node' } }
  for (const tree of [
    { type: 'object', properties: child },
    { type: 'object', properties: { children: { type: 'array', items: child.child } } },
    { type: 'object', properties: child, allOf: [{ required: ['child'] }] },
    true as never,
  ])
    t.strictSame(circle(tree), [], JSON.stringify(tree))
  t.match(schema({ type: 'object', $ref: '#' }), [/is refused by Ajv: Maximum call stack/])
  const hidden = [{ type: 'string', pattern: '^(a+)+$' }]
  const pointing = { a: { $ref: '#/properties/b/enum/0' }, b: { enum: hidden } }
  const says = [/a\/\$ref must be # and the JSON pointer of a schema/]
  t.match(schema({ type: 'object', properties: pointing }), says, 'what is no schema was not checked')
  for (const $ref of ['https://example.com/x', 'other.json', '#/properties/none'])
    t.match(schema({ type: 'object', properties: { a: { $ref } } }), says, $ref)
})

t.test('a pattern needs a limit of the length, and must not be slow', async (t) => {
  const pattern = (text: string, more: object = { maxLength: 256 }) =>
    schema({ type: 'object', properties: { a: { type: 'string', pattern: text, ...more } } })
  const date = String.raw`^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?)?Z?$`
  for (const text of [
    ...words(
      String.raw`^[a-z]+?$ ^(?=[a-z])(?:ab)?(?:cd){2}$ ^(?:a|b)-\d{2,4}$ ^(ab)+$ ^\(\+\)*$ ^[(+*]+$ ^(a+)?$`,
    ),
    // Each text matches in one way, or in few.
    ...words(
      String.raw`^(a|b)*$ ^((a|b))+$ ^a*b*c*d*$ ^[^@]+@[^@]+\.[^@]+$ ^[a-z0-9]+(-[a-z0-9]+)*$ ^[\p{L}\p{N}]+$`,
    ),
    ...[date, '^\\u{61}?b$'],
  ])
    t.strictSame(pattern(text), [], text)
  t.match(pattern('^a$', {}), [/needs maxLength of at most 256/])
  t.match(pattern('^a$', { maxLength: 257 }), [/needs maxLength/])
  for (const text of [
    ...words('(a+)+ (a*)* ^(a+)+$ ^(?:a*)*$ ^(a|a)*$ ^((a+))+$ ^(a{2,}){3}$ ^.*.*.*.*x$ a*a*a*b'),
    ...words(String.raw`^(?:(?:a+)?)+$ ^(?:a?){26}a{26}$ ^(?:a?)*$ ^(\w+\s?)*$`),
    `^${'(a|aa)'.repeat(30)}$`,
    `^${'a?'.repeat(30)}${'a'.repeat(30)}$`,
    // The braces are no count, and their question mark makes nothing lazy.
    `^${'\\u{61}?'.repeat(25)}$`,
  ])
    t.match(pattern(text), [/could keep it busy/], text)
  t.match(pattern('^(a$'), [/is refused by Ajv|could keep it busy/], 'no pattern at all')
})

t.test('a list of unique items needs a limit of its length', async (t) => {
  const list = (more: object) =>
    schema({ type: 'object', properties: { a: { type: 'array', uniqueItems: true, ...more } } })
  for (const more of [{}, { maxItems: 257 }])
    t.match(list(more), [/\/a\/uniqueItems needs maxItems of at most 256/], JSON.stringify(more))
  t.strictSame(list({ maxItems: 256 }), [])
  t.strictSame(list({ uniqueItems: false }), [])
})

t.test('a member of a schema that the server fills in has the spelling that is sent', async (t) => {
  const body = (name: string, set: object) =>
    faults({ body: { set, schema: { type: 'object', properties: { [name]: {} } } } }, WRITE)
  t.match(body('thingID', {}), [/\/schema\/properties\/thingID is sent as thingId: write it so/])
  t.match(body('WAC', {}), [/\/schema\/properties\/WAC is sent as wac/])
  t.match(body('w_type', { wType: 'X' }), [/w_type is sent as wType/])
  t.strictSame(body('thingId', {}), [])
  t.strictSame(body('thingID', { thingID: '{thingId}' }), [])
})

t.test('a number of the file that a double does not keep is a fault', async (t) => {
  const faultsWith = (number: string) => {
    const body = `{"any":true,"set":{"n":${number}}}`
    const file = `{"operations":{"Write":{"method":"PUT","path":"/{wac}/a","body":${body}}}}`
    return readOperations(file).faults
  }
  const says = ['/operations/Write/body/set/n is a number that cannot be passed on unchanged']
  for (const number of ['9007199254740993', '0.1234567890123456', '1e400'])
    t.match(faultsWith(number), says, number)
  for (const number of ['9007199254740991', '-0.5', '1e3']) t.strictSame(faultsWith(number), [], number)
})

t.test('set fills in values of the path, and each of them under one name', async (t) => {
  const set = (value: unknown, more: object = {}) =>
    faults({ body: { any: true, set: value }, ...more }, WRITE)
  const constants = { wType: 'X', count: 1, flag: true, none: null }
  t.strictSame(set({ ...constants, thingID: '{thingId}', wac: '{wac}', account: '{wac}' }), [])
  t.match(set({ a: '{other}' }), [/names \{other\}, which the path does not have/])
  t.match(set({ thing_id: 7 }), [/must be "\{thingId\}"/])
  t.match(set({ WAC: 'ACME' }), [/must be "\{wac\}"/])
  t.match(set({ a: {} }), [/must be a text, a number/])
  for (const mistyped of ['{wac', 'wac}', 'x{wac}']) t.match(set({ a: mistyped }), [/a text without braces/])
  t.match(set({ aB: 1, a_b: 2 }), [/two members like ab/])
  t.match(set([]), [/must be an object/])
})

t.test('application is for GET and needs the client flow, but no CLIENT_FLUX_ALLOWED', async (t) => {
  t.match(faults({ application: true }, WRITE), [/is for GET only/])
  t.match(faults({ application: 'yes' }), [/must be true or false/])
  const file = fileOf(t, { Read: { ...GOOD, application: true } })
  t.strictSame(faultsOf(file), [
    'OPERATIONS_FILE /operations/Read/application needs the client flow in OAUTH_FLOWS',
  ])
  t.strictSame(faultsOf({ ...file, OAUTH_FLOWS: 'code,client' }), [])
  const faulty = fileOf(t, { Read: { ...GOOD, application: true }, Other: { ...GOOD, method: 'TRACE' } })
  t.equal(faultsOf({ ...faulty, OAUTH_FLOWS: 'code,client' }).length, 1, 'no fault follows from another')
})

t.test('"none" is a fault while WAC_ALLOWED is set, but for one of the application', async (t) => {
  const read = { method: 'GET', path: '/WUM', account: 'none' }
  const WAC_ALLOWED = 'DEMO'
  const ofUser = fileOf(t, { Read: read })
  t.strictSame(faultsOf(ofUser), [])
  t.match(faultsOf({ ...ofUser, WAC_ALLOWED }), [/\/account must not be "none" while WAC_ALLOWED/])
  const ofApplication = fileOf(t, { Read: { ...read, application: true } })
  t.strictSame(faultsOf({ ...ofApplication, WAC_ALLOWED, OAUTH_FLOWS: 'client' }), [])
})

t.test('a path that is an endpoint of the authorization server on the same origin is a fault', async (t) => {
  const file = (path: string, parameters: object = path.includes('{') ? { end: 'id' } : {}) =>
    fileOf(t, { Write: { method: 'POST', path, account: 'none', parameters } })
  const host = 'https://api.example.com'
  for (const [path, env] of [
    ['/oauth/token', { AUTH_URL: host }],
    ['/OAuth/Token', { AUTH_URL: host }],
    ['/oauth/token.json', { AUTH_URL: host }],
    ['/oauth/authorize', { AUTH_URL: host }],
    ['/t', { OAUTH_TOKEN_URL: `${host}/t` }],
    ['/revoke/x', { OAUTH_REVOCATION_URL: `${host}/revoke/x` }],
    ['/oauth/token', { AUTH_URL: `${host}/v1`, BASE_URL: `${host}/v1` }],
    // Two of them.
    ['/oauth/{end}', { AUTH_URL: host }],
  ] as [string, Env][])
    t.match(faultsOf({ ...env, ...file(path) }), [/\/path is an endpoint of the authorization server/], path)
  for (const [path, env] of [
    ['/oauth/token', {}],
    ['/oauth/token', { AUTH_URL: host, BASE_URL: `${host}/api` }],
    ['/oauth/other', { AUTH_URL: host }],
  ] as [string, Env][])
    t.strictSame(faultsOf({ ...env, ...file(path) }), [], path)
  const others = file('/oauth/{end}', { end: { enum: ['other'] } })
  t.strictSame(faultsOf({ AUTH_URL: host, ...others }), [])
})

t.test('two declarations must not have the same path, nor match those built in', async (t) => {
  const read = (path: string, more: object = {}) => ({ method: 'GET', path, ...more })
  const ids = { parameters: { a: 'id' } }
  for (const [one, other] of [
    [read('/{wac}/things'), read('/{wac}/Things')],
    [read('/{wac}/things/{a}', ids), read('/{wac}/things/{a}', { parameters: { a: 'integer' } })],
    [read('/{wac}/things/{a}', ids), read('/{wac}/THINGS/{b}', { parameters: { b: 'id' } })],
  ])
    t.match(faultsIn({ One: one, Other: other }), [/^.operations.Other.path matches requests of One too/])
  // The router takes the literal.
  for (const [one, other] of [
    [read('/{wac}/things/{a}', ids), read('/{wac}/things/list')],
    [read('/{wac}/things'), read('/demo/things', { account: 'none' })],
  ])
    t.strictSame(faultsIn({ One: one, Other: other }), [])
  const site = read('/{wac}/Infrastructure/Site/{a}', ids)
  const reply = { method: 'POST', path: '/json/reply/UpdateSite', account: 'none' }
  t.match(faultsIn({ One: read('/{wac}/FLUX/{a}', ids) }), [/matches requests of GetFlux too/])
  t.match(faultsIn({ One: { ...site, method: 'PUT' } }), [/of UpdateSite too/])
  t.match(faultsIn({ One: reply }), [/of UpdateSite too/])
  const kinds = (path: string, ...words: string[]) => {
    const parameters = { kind: { enum: words }, ...(path.includes('{id}') && { id: 'integer' }) }
    return faultsIn({ One: { method: path.includes('Infra') ? 'PUT' : 'GET', path, parameters } })
  }
  for (const [path, name, word, same] of [
    ['/{wac}/Infrastructure/{kind}/{id}', 'UpdateSite', 'Zone', 'site'],
    ['/{wac}/{kind}/list', 'GetFlux', 'Zone', 'FLUX'],
  ] as const) {
    t.strictSame(kinds(path, word), [], 'none of the words is that of the path')
    t.match(kinds(path, word, same), [new RegExp(`path matches requests of ${name} too`)])
  }
  const sending = { method: 'POST', path: '/json/reply/{kind}', account: 'none' }
  const parameters = { kind: { enum: ['Other', 'updatesite.JSON'] } }
  t.match(faultsIn({ One: { ...sending, parameters } }), [/of UpdateSite too/])
  // The platform reads a suffix as a format, and may read paths in any case.
  for (const end of ['UpdateSite.json', 'updatesite.JSON', 'UpdateSite.xml'])
    t.match(faultsIn({ One: { ...reply, path: `/json/reply/${end}` } }), [/of UpdateSite too/], end)
  for (const path of ['/json/reply/UpdateSite.jsonp', '/json/reply/UpdateSites.json', '/json.json/reply/x'])
    t.strictSame(faultsIn({ One: { ...reply, path } }), [], path)
  t.strictSame(faultsIn({ One: site, Two: { ...site, method: 'DELETE' } }), [])
})

t.test('each JSON block of docs/operations.md is a file that the server accepts', async (t) => {
  const blocks = codeBlocks('docs/operations.md').filter(({ language }) => language === 'json')
  t.equal(blocks.length, 10, 'the examples and eight recipes')
  for (const { heading, code } of blocks) t.strictSame(readOperations(code).faults, [], heading)
})

t.test('operations of one path with different methods may name its parameters otherwise', async (t) => {
  const read = { method: 'GET', path: '/{wac}/things/{thingId}', parameters: { thingId: 'id' } }
  const remove = { method: 'DELETE', path: '/{wac}/things/{id}', parameters: { id: 'id' } }
  t.strictSame(faultsIn({ Read: read, Remove: remove }), [])
})

t.test('an identity names a GET without parameters, and where its answer has id and name', async (t) => {
  const Me = { method: 'GET', path: '/{wac}/me' }
  const identity = { operation: 'Me', id: '/user/id', name: '/user/a~1b' }
  const read = (change: object, operation: object = Me) =>
    readOperations(JSON.stringify({ operations: { Me: operation }, identity: { ...identity, ...change } }))
  t.match(read({}), {
    identity: { operation: { name: 'Me' }, id: ['user', 'id'], name: ['user', 'a/b'] },
    faults: [],
  })
  t.match(read({ name: undefined }), { identity: { name: null }, faults: [] })
  const cases: [change: object, fault: string, operation?: object][] = [
    [{ operation: 'You' }, '/identity/operation must be the name of a declared operation'],
    [{}, '/identity/operation must be a GET', { ...Me, method: 'POST' }],
    [{}, '/identity/operation must have no parameter in its path but {wac}', GOOD],
    [{}, '/identity/operation must have the format JSON', { ...Me, formats: ['CSV'] }],
    [{}, '/identity/operation must have the format JSON', { ...Me, formats: 'any' }],
    [{ id: 'id' }, '/identity/id must be a JSON pointer, as /id'],
    [{ id: undefined }, '/identity/id must be a JSON pointer, as /id'],
    [{ name: 7 }, '/identity/name must be a JSON pointer, as /name'],
    [{ email: '/email' }, '/identity/email is not known'],
  ]
  for (const [change, fault, operation] of cases) t.strictSame(read(change, operation).faults, [fault], fault)
  t.match(readOperations('{"operations":{},"identity":"Me"}').faults, ['/identity must be an object'])
})

t.test('a form that is uploaded is a warning while WAC_ALLOWED is set', async (t) => {
  const upload = (type: string) =>
    fileOf(t, { Put: { method: 'PUT', path: '/{wac}/a', body: { types: ['image/png', type], limit: 1 } } })
  const form = upload('multipart/form-data')
  t.match(warningsOf({ ...form, WAC_ALLOWED: 'DEMO' }), [
    /^OPERATIONS_FILE \/operations\/Put\/body\/types: .* not compared with WAC_ALLOWED \(multipart\/form-data\)$/,
  ])
  t.strictSame(warningsOf(form), [])
  t.strictSame(warningsOf({ ...upload('image/gif'), WAC_ALLOWED: 'DEMO' }), [])
})

t.test('an identity of an account needs WAC', async (t) => {
  const identity = { operation: 'Me', id: '/id' }
  const declared = (operation: object) => fileOf(t, { Me: { method: 'GET', ...operation } }, { identity })
  const ofAccount = declared({ path: '/{wac}/me' })
  t.match(faultsOf(ofAccount), [/^OPERATIONS_FILE \/identity\/operation .*WAC must be set$/])
  t.ok(configOf({ ...ofAccount, WAC: 'DEMO' }).identity)
  t.ok(configOf(declared({ path: '/me', account: 'none' })).identity)
})
