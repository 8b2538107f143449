import { Ajv2020 } from 'ajv/dist/2020.js'
import t from 'tap'
import { BUILT_IN } from '../../src/config/built-in.ts'
import { schemaAt } from '../../src/config/operation-schema.ts'
import { VERSION } from '../../src/version.ts'
import { shared } from '../helpers/shared.ts'
import type { Bff } from '../helpers/system.ts'

interface Document {
  info: { version: string }
  paths: Record<string, Record<string, { summary?: string; security?: object[] }>>
  components: { schemas: Record<string, object> }
}

const documentOf = async (bff: Bff) =>
  (await bff.browser().fetch('/openapi.json')).json() as unknown as Document

/** An address of a described path. */
const at = (path: string): string => path.replace(/\{nonce\}/, 'A'.repeat(43)).replace(/\{\w+\}/g, '1')

const both = (path: string) => [`GET ${path}`, `HEAD ${path}`]
const ALWAYS = [
  ...['/auth/client.d.ts', '/auth/client.js', '/auth/ready', '/auth/session', '/openapi.json'].flatMap(both),
  ...['/flux/{fluxId}', '/flux/{wac}/{fluxId}'].flatMap(both),
  ...['GET /auth/login', 'POST /auth/logout', 'POST /auth/session', 'POST /site', 'POST /site.json'],
  ...['PUT /site/{siteId}', 'PUT /site/{wac}/{siteId}'],
]

for (const [env, more] of [
  [{ OAUTH_REDIRECT: 'fixed' }, ['GET /auth/callback']],
  [{ OAUTH_FLOWS: 'code,password' }, ['GET /auth/callback/{nonce}', 'POST /auth/password']],
  [{ OAUTH_FLOWS: 'token' }, ['GET /auth/callback/{nonce}', 'POST /auth/callback/{nonce}']],
  [{ OAUTH_FLOWS: 'token', OAUTH_REDIRECT: 'fixed' }, ['GET /auth/callback', 'POST /auth/callback/{nonce}']],
] as const) {
  t.test(`OpenAPI lists exactly the served operations: ${JSON.stringify(env)}`, async (t) => {
    const { bff } = await shared({ ...env })
    const { paths } = await documentOf(bff)
    const operations = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    )
    t.strictSame(operations.sort(), [...ALWAYS, ...more].sort())
    for (const operation of operations) {
      const [method, path] = operation.split(' ') as [string, string]
      const { status, text } = await bff.browser().fetch(at(path), { method })
      t.notOk([404, 405].includes(status), `${operation}: ${status} ${text}`)
    }
  })
}

t.test('each operation that is built in has routes', async (t) => {
  const { bff } = await shared({})
  const { paths } = await documentOf(bff)
  const served = new Set(
    Object.values(paths).flatMap((item) => Object.values(item).map(({ summary }) => summary)),
  )
  for (const { name } of BUILT_IN)
    t.ok(served.has(name), `${name} of src/config/built-in.ts: a file and a line in src/proxy/routes.ts`)
})

t.test('OpenAPI has the version, and makes the session optional where the application reads', async (t) => {
  const env = { OAUTH_FLOWS: 'code,client', CLIENT_FLUX_ALLOWED: '*' }
  const { bff } = await shared(env)
  const { info, paths } = await documentOf(bff)
  t.equal(info.version, VERSION)
  t.strictSame(paths['/flux/{fluxId}']?.get?.security, [{ session: [] }, {}])
})

t.test('a body of UpdateSite that names the Site needs the account where the server has none', async (t) => {
  const withTarget = async (env: Record<string, string>) => {
    const { bff } = await shared(env)
    const { components } = await documentOf(bff)
    return components.schemas.SiteUpdateWithTarget
  }
  t.match(await withTarget({}), { required: ['siteID'], examples: [{ siteID: 42, wac: undefined }] })
  t.match(await withTarget({ WAC: '' }), {
    required: ['siteID', 'wac'],
    examples: [{ siteID: 42, wac: 'DEMO' }],
  })
})

const DECLARED = JSON.stringify({
  operations: {
    ReadPoints: {
      ...{
        method: 'GET',
        path: '/{wac}/Point/{pointId}',
        parameters: { pointId: 'integer' },
        formats: ['CSV'],
      },
      query: {
        ...{ from: 'integer', take: { integer: [1, 9] }, scale: 'number', all: 'boolean', search: 'text' },
        id: { list: 'integer', max: 3 },
      },
    },
    NamePoint: {
      ...{ method: 'PUT', path: '/{wac}/Point/{pointId}', parameters: { pointId: 'integer' } },
      body: {
        set: { wType: 'Point', POINT_ID: '{pointId}' },
        schema: {
          ...{ type: 'object', required: ['wType', 'name'] },
          properties: { wType: {}, POINT_ID: {}, name: { type: 'string' }, floor: { type: 'integer' } },
        },
      },
    },
    SendPoint: { method: 'POST', path: '/json/Send', account: 'body', body: 'any' },
    SetPoint: {
      ...{
        method: 'POST',
        path: '/{wac}/Point/{kind}/{id}',
        parameters: { kind: { enum: ['a'] }, id: 'id' },
      },
      body: {
        schema: {
          ...{ type: 'object', description: 'One value.' },
          ...{ properties: { value: { type: 'number' } }, examples: [{ value: 1 }] },
        },
      },
    },
    Closed: {
      ...{ method: 'PUT', path: '/{wac}/Closed' },
      body: {
        schema: {
          ...{ type: 'object', additionalProperties: false },
          properties: { wac: { type: 'string' }, floor: { type: 'integer' } },
        },
      },
    },
  },
})

t.test('generators of clients can use the OpenAPI document', async (t) => {
  const OPERATIONS_FILE = `${t.testdir({ 'operations.json': DECLARED })}/operations.json`
  const { bff } = await shared({ OPERATIONS_FILE, OAUTH_FLOWS: 'code,token,password' })
  const { text } = await bff.browser().fetch('/openapi.json')
  for (const [words, why] of [
    ['"2XX"', 'a range of statuses, which half of them cannot read'],
    ['"const"', 'openapi-python-client leaves out the operation'],
    ['(?!', 'no pattern of Go has a lookahead'],
    ['"servers"', 'a page would call the address of its developer'],
    [bff.publicUrl, 'the same'],
  ] as const)
    t.notMatch(text, words, why)
  const { paths, components } = JSON.parse(text)
  t.strictSame(components.parameters['X-CSRF'].schema, { type: 'string', enum: ['1'] })
  for (const [path, item] of Object.entries<Record<string, Described>>(paths))
    for (const [method, { parameters = [], requestBody, responses }] of Object.entries(item)) {
      const what = `${method} ${path}`
      for (const { $ref, name, example } of parameters)
        t.ok($ref !== undefined || example !== undefined, `${what}: an example of ${name}`)
      const schema = requestBody?.content['application/json'].schema.$ref.split('/').at(-1)
      if (schema !== undefined) t.ok(components.schemas[schema].examples, `${what}: an example of ${schema}`)
      for (const status of Object.keys(responses)) t.match(status, /^([1-5]\d\d|default)$/, what)
    }
  t.match(components.schemas.NamePointBody, {
    required: ['name'],
    examples: [{ name: 'text', floor: 1 }],
    description: /15 significant digits\. May repeat .* the same value: wType, POINT_ID, wac\.$/,
  })
  t.match(components.schemas.SetPointBody.description, /^One value\. May repeat .*: kind, id, wac\.$/)
  t.notMatch(components.schemas.SendPointBody.description, 'May repeat')
  t.strictSame(components.schemas.ClosedBody.examples, [{ floor: 1 }], 'wac would have to agree')
  t.notOk('wType' in components.schemas.NamePointBody.examples[0], 'the server fills it in')
  t.strictSame(components.schemas.SendPointBody.examples, [{ wac: 'DEMO' }])
  const of = (path: string, method: string) => paths[path][method]
  t.strictSame(Object.keys(of('/data/{wac}/Point/{kind}/{id}', 'post').responses).slice(0, 4), [
    ...['200', '201', '202', '204'],
  ])
  const free = of('/flux/{fluxId}', 'get').parameters.find(({ name }: Described) => name === 'parameters')
  t.match(free, { style: 'form', explode: true, example: {} })
  const { content } = of('/site/{siteId}', 'put').responses[200]
  t.equal(content['text/javascript'].schema.type, 'string', 'JSONP')
})

t.test('schemas with definitions, tuples and members named $ref do no harm to the document', async (t) => {
  const text = { type: 'string' }
  const schema = {
    ...{ $schema: 'https://json-schema.org/draft/2020-12/schema', type: 'object', required: ['id'] },
    properties: {
      ...{ $id: text, $ref: text, id: { $ref: '#/definitions/List%601' } },
      ...{ pair: { type: 'array', items: [text, text], minItems: 2, additionalItems: false } },
      last: { $ref: '#/properties/pair/items/1' },
    },
    definitions: { 'List`1': { type: 'object', properties: { id: text, next: { $ref: '#' } } } },
    examples: [{ $ref: '#/none', id: {} }],
  }
  const path = { path: '/{wac}/nodes' }
  const operations = {
    ListNodes: { method: 'GET', ...path, response: { type: 'array', items: schema.properties.pair } },
    ReadNode: { method: 'GET', path: '/{wac}/node', response: schema },
    SendNode: { method: 'POST', ...path, body: { set: { id: 7 }, schema }, response: schema },
  }
  const file = t.testdir({ 'operations.json': JSON.stringify({ operations }) })
  const { bff } = await shared({ OPERATIONS_FILE: `${file}/operations.json` })
  const { status, text: document } = await bff.browser().fetch('/openapi.json')
  t.equal(status, 200)
  const whole = JSON.parse(document)
  const { schemas } = whole.components
  for (const name of Object.keys(schemas)) t.match(name, /^[A-Za-z0-9._-]+$/)
  const references = [...document.matchAll(/"\$ref":"(#[^"]+)"/g)].map(([, reference]) => reference!)
  for (const reference of references.filter((one) => one !== '#/none'))
    t.ok(schemaAt(whole, reference) !== undefined, reference)
  const { properties } = schemas.ReadNodeResponse
  t.match(properties, { $id: text, $ref: text, pair: { prefixItems: [text, text], items: false } })
  t.strictSame(Object.keys(schemas.SendNodeBody.properties), Object.keys(properties))
  t.strictSame(schemas.SendNodeBody.required, [], 'the server fills it in')
  const ajv = new Ajv2020({ strict: false })
  for (const [name, one] of Object.entries(schemas)) t.ok(ajv.validateSchema(one as object), name)
})

interface Described {
  $ref?: string
  name?: string
  example?: unknown
  parameters?: Described[]
  requestBody?: { content: { 'application/json': { schema: { $ref: string } } } }
  responses: object
}
