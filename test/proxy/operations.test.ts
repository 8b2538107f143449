import { writeFileSync } from 'node:fs'
import t from 'tap'
import { readDeclaredOperations } from '../../sandbox/operations.ts'
import { shared } from '../helpers/shared.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { ask, field, OWN, problemOf } from '../http/wire.ts'
import { proxyCaller } from './proxy-caller.ts'

const OBJECT = { type: 'object', additionalProperties: false }
const TEXT = { type: 'string' }

const operation = (method: string, path: string, more: object = {}) => ({ method, path, ...more })
const thing = (method: string, more: object = {}, end = '') =>
  operation(method, `/{wac}/things/{thingId}${end}`, { parameters: { thingId: 'id' }, ...more })

const BUILDING = {
  parameters: { buildingId: 'integer' },
  body: {
    set: { wType: 'UpdateBuilding', buildingID: '{buildingId}', wac: '{wac}' },
    schema: { ...OBJECT, required: ['name'], properties: { name: TEXT, height: { type: 'number' } } },
  },
}

const OPERATIONS = {
  ListFluxes: operation('GET', '/{wac}/flux', {
    query: {
      ...{ skip: 'integer', take: { integer: [1, 1000] }, search: 'text', factor: 'number', deep: 'boolean' },
      order: { enum: ['up', 'down ü'] },
    },
    formats: ['JSON', 'CSV'],
  }),
  GetSite: operation('GET', '/{wac}/Infrastructure/Site/{siteId}', { parameters: { siteId: 'integer' } }),
  GetThing: thing('GET'),
  ListKind: operation('GET', '/{wac}/kinds/{kind}/all', {
    ...{ parameters: { kind: { enum: ['red', 'blue'] } }, formats: ['CSV'] },
  }),
  ListWUMs: operation('GET', '/WUM', { account: 'none', application: true }),
  GetMe: operation('GET', '/{wac}/User/me'),
  UpdateBuilding: operation('PUT', '/{wac}/Infrastructure/Building/{buildingId}', BUILDING),
  PatchThing: thing('PATCH', { body: 'any' }),
  SendReply: operation('POST', '/json/reply/Send', {
    account: 'body',
    body: { any: true, set: { wType: 'Send' } },
  }),
  ResetThing: thing(
    'POST',
    { body: { set: { wType: 'Reset' }, schema: { type: 'object', required: ['wType'] } } },
    '/reset',
  ),
  StartThing: thing('POST', {}, '/start'),
  PatchSeries: operation('PATCH', '/{wac}/series/{seriesId}', {
    parameters: { seriesId: 'integer' },
    body: 'any',
  }),
  CountThings: operation('GET', '/{wac}/things/count/all'),
  StopThing: operation('DELETE', '/{wac}/things/{other}/{state}', {
    ...{ parameters: { other: 'id', state: 'id' }, formats: ['JSON', 'CSV'] },
  }),
  DeleteThing: thing('DELETE'),
  GetZone: operation('GET', '/{wac}/zones/{zoneId}', { parameters: { zoneId: 'integer' } }),
  PutZone: operation('PUT', '/{wac}/zones/{id}', { parameters: { id: 'id' }, body: 'any' }),
}

const OPERATIONS_FILE = `${makeFolder('operations')}/operations.json`
writeFileSync(OPERATIONS_FILE, JSON.stringify({ operations: OPERATIONS }))
const OPTIONS = { operations: readDeclaredOperations(OPERATIONS_FILE) }

/** The environment of a server with these operations. */
const environment = (more: Record<string, string> = {}) => ({
  ...{ OPERATIONS_FILE, OAUTH_FLOWS: 'code,client', ...more },
})

async function ready(more: Record<string, string> = {}) {
  const caller = await proxyCaller(environment(more), OPTIONS)
  const send = (method: string, target: string, body?: string) =>
    caller.send({ method, target, ...(body === undefined ? { headers: [] } : { body }) })
  return { ...caller, send }
}

t.test('a declared GET is sent as declared, and its response comes byte for byte', async (t) => {
  const { send, sent } = await ready()
  const answer = await send('GET', '/data/DEMO/Infrastructure/Site/42')
  t.match(problemOf(answer), { wType: 'Site', id: 42 })
  t.match(sent(), {
    kind: 'GetSite',
    method: 'GET',
    url: '/DEMO/Infrastructure/Site/42?format=JSON',
    body: '',
    type: 'application/json',
    accept: 'application/json',
  })
  t.equal(field(answer, 'x-content-type-options'), 'nosniff')
  t.equal((await send('HEAD', '/data/ACME/flux')).status, 200)
  t.match(sent(), { method: 'HEAD', url: '/ACME/flux?format=JSON' })
  await send('GET', '/data/WUM')
  t.match(sent(), { kind: 'ListWUMs', url: '/WUM?format=JSON' })
})

t.test('parts of a path are checked by their type and inserted as they are', async (t) => {
  const { send, sent, refused } = await ready()
  for (const path of [
    '/DEMO/things/a.b~c-d_E',
    '/DEMO/things/...',
    '/my.acc~1/things/0',
    '/DEMO/Infrastructure/Site/9007199254740991',
  ]) {
    await send('GET', `/data${path}`)
    t.equal(sent().url, `${path}?format=JSON`, path)
  }
  for (const id of ['-1', '+1', '01', '1.0', '1e3', '9007199254740992', '%D9%A1', '%31%2f', 'a', '1%20'])
    refused(t, await send('GET', `/data/DEMO/Infrastructure/Site/${id}`), /siteId/, id)
  const odd = ['.', '..', '%2e%2e', 'a%2fb', 'a%252fb', 'a%20b', 'a;b', 'a:b', '%c3%a9', 'a%00', 'a+b']
  for (const id of [...odd, 'a'.repeat(129)])
    refused(t, await send('GET', `/data/DEMO/things/${id}`), /thingId/, id)
  for (const kind of ['green', 'Red', 'red%00', 'constructor'])
    refused(t, await send('GET', `/data/DEMO/kinds/${kind}/all`), /kind/, kind)
  for (const wac of ['..', 'a%2fb', 'W'.repeat(65)])
    refused(t, await send('GET', `/data/${wac}/flux`), /wac/, wac)
})

t.test('what is not declared does not pass', async (t) => {
  const { sandbox, send } = await ready()
  for (const [method, target, status] of [
    ['GET', '/data', 404],
    ['GET', '/data/', 404],
    ['GET', '/data/DEMO/flux/', 404],
    ['GET', '/data/DEMO/flux/power', 404],
    ['GET', '/data/DEMO/Flux', 404],
    ['GET', '/data//flux', 404],
    ['GET', '/data/DEMO/Zone/1', 404],
    ['GET', '/data/oauth/token', 404],
    ['POST', '/data/DEMO/flux', 405],
    ['PUT', '/data/DEMO/things/a', 405],
    ['OPTIONS', '/data/DEMO/flux', 405],
  ] as const) {
    const answer = await send(method, target)
    t.equal(answer.status, status, `${method} ${target}`)
    if (status === 404) t.match(problemOf(answer).detail, /No declared operation/, target)
  }
  t.equal(field(await send('PUT', '/data/DEMO/things/a'), 'allow'), 'GET, HEAD, PATCH, DELETE')
  t.equal(
    field(await send('PUT', '/data/DEMO/things/count/all'), 'allow'),
    'GET, HEAD, DELETE',
    'a literal and a parameter in one place',
  )
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('a query has the declared parameters, each at most once and by its grammar', async (t) => {
  const { send, sent, refused } = await ready()
  for (const [query, expected] of [
    ['', 'format=JSON'],
    ['skip=0&take=1000', 'format=JSON&skip=0&take=1000'],
    ['skip=-9007199254740991', 'format=JSON&skip=-9007199254740991'],
    ['factor=-0.125&deep=true', 'format=JSON&factor=-0.125&deep=true'],
    ['factor=123456789012345.123456789012345', 'format=JSON&factor=123456789012345.123456789012345'],
    ['search=a+b%26c%C3%A4%3B', 'format=JSON&search=a%20b%26c%C3%A4%3B'],
    ['search=', 'format=JSON&search='],
    [`search=${'x'.repeat(512)}`, `format=JSON&search=${'x'.repeat(512)}`],
    ['order=down%20%C3%BC&FORMAT=csv', 'format=CSV&order=down%20%C3%BC'],
    ['s%6bip=%31', 'format=JSON&skip=1'],
  ] as const) {
    t.equal((await send('GET', `/data/DEMO/flux?${query}`)).status, 200, query)
    t.equal(sent().url, `/DEMO/flux?${expected}`, query)
  }
  for (const query of [
    ...['other=1', 'Skip=1', 'skip=1&skip=1', 'skip=1&s%6bip=2', 'wac=ACME', 'WAC=DEMO', 'access_token=x'],
    ...['callback=x', 'skip=01', 'skip=+1', 'skip=-0', 'skip=1.0', 'skip=1e3', 'skip=', 'skip=1%00'],
    ...['skip=9007199254740992', 'skip=%D9%A1', 'take=0', 'take=1001', 'take=-1', 'factor=.5', 'factor=1.'],
    ...['factor=00.1', 'factor=1e1234', 'factor=NaN', 'factor=1234567890123456', 'factor=0.1234567890123456'],
    ...['deep=True', 'deep=1', 'order=Up', 'order=constructor', `search=${'x'.repeat(513)}`, 'search=a%0Ab'],
    ...['search=%00', 'search=%ED%A0%80', 'format=XML', 'format=JSON&format=JSON'],
  ])
    refused(t, await send('GET', `/data/DEMO/flux?${query}`), /parameter/i, query)
})

t.test('a format is chosen among the declared ones, as for a Flux', async (t) => {
  const { get, sent } = await ready()
  for (const [header, value, format, type] of [
    ['Accept', 'application/xml, text/csv;q=0.1', 'CSV', 'text/csv'],
    ['Content-Type', 'text/csv', 'CSV', 'text/csv'],
    ['Content-Type', 'application/xml', 'JSON', 'application/json'],
    ['Accept', 'text/html', 'JSON', 'application/json'],
  ] as const) {
    await get('/data/DEMO/flux', [header, value])
    t.match(sent(), { url: `/DEMO/flux?format=${format}`, accept: type, type }, `${header}: ${value}`)
  }
  t.equal((await get('/data/DEMO/flux', ['Accept', 'application/xml'])).status, 406)
  await get('/data/DEMO/kinds/red/all')
  t.match(sent(), { url: '/DEMO/kinds/red/all?format=CSV', accept: 'text/csv' }, 'the only format')
  const generated = 'application/json, text/plain, */*;q=0'
  await get('/data/DEMO/kinds/red/all', ['Accept', generated])
  t.match(sent(), { accept: 'text/csv' }, 'a generated client names JSON in each request')
  t.equal((await get('/data/DEMO/kinds/red/all', ['Accept', 'application/xml'])).status, 406)
})

t.test('a body is validated, completed and written again', async (t) => {
  const { send, sent, refused } = await ready()
  const put = (body: string) => send('PUT', '/data/DEMO/Infrastructure/Building/7', body)
  const known = '"wType":"UpdateBuilding","buildingID":7,"wac":"DEMO"'
  for (const [body, expected] of [
    ['{"name":"ä","height":1.50}', `{"name":"ä","height":1.5,${known}}`],
    ['\ufeff { "name" : "N" } ', `{"name":"N",${known}}`],
    ['{"building_id":7,"name":"N"}', `{"buildingID":7,"name":"N","wType":"UpdateBuilding","wac":"DEMO"}`],
    [
      '{"WAC":"DEMO","w-type":"UpdateBuilding","name":"N"}',
      `{"wac":"DEMO","wType":"UpdateBuilding","name":"N","buildingID":7}`,
    ],
  ] as const) {
    t.equal((await put(body)).status, 200, body)
    const { method, url, type, body: written } = sent()
    t.strictSame([method, url], ['PUT', '/DEMO/Infrastructure/Building/7?format=JSON'], body)
    t.strictSame([type, written], ['application/json', expected], body)
  }
  await send('POST', '/data/DEMO/things/a/reset', '{}')
  t.match(sent(), { body: '{"wType":"Reset"}' }, 'a required member is filled in')
  for (const [body, names] of [
    ['{}', /name is missing/],
    ['{"name":1}', /name/],
    ['{"name":"N","other":1}', /other is not known/],
    ['{"name":"N","buildingID":8}', /buildingID does not agree/],
    ['{"name":"N","buildingID":"7"}', /buildingID does not agree/],
    ['{"name":"N","buildingId":7,"BUILDING_ID":7}', /buildingID is there twice/],
    ['{"name":"N","wac":"ACME"}', /wac does not agree/],
    ['{"name":"N"," wac":"ACME"}', /wac does not agree/],
    ['{"name":"N","_wac ":"ACME"}', /wac does not agree/],
    ['{"name":"N","Wac":"DEMO","wac":"DEMO"}', /wac is there twice/],
    ['{"name":"N","wType":"Other"}', /wType does not agree/],
    ['{"name":"N","name":"M"}', /name is there twice/],
    ['{"name":"N","__proto__":{}}', /__proto__ is not known/],
    ['{"name":"N","constructor":1}', /constructor is not known/],
    ['{"name":"N","height":9007199254740993}', /height is a number that cannot be passed on unchanged/],
    ['{"name":"N","height":0.1234567890123456}', /height is a number/],
    ['{"name":"N","height":1e400}', /height is a number/],
    ['[object Object]', /JSON\.stringify/],
  ] as const)
    refused(t, await put(body), names, body)
})

t.test('a member is compared with every letter that a platform may take for the same', async (t) => {
  const { sandbox, send } = await ready()
  const [thing, series] = ['/data/DEMO/things/a', '/data/DEMO/series/7']
  t.equal((await send('PATCH', thing, '{"thing\u0131d":"b"}')).status, 400, 'a dotless i')
  t.equal((await send('PATCH', series, '{"\u017feriesId":8}')).status, 400, 'a long s')
  t.equal((await send('PATCH', series, '{"\u017feriesId":7}')).status, 200, 'in agreement')
  t.strictSame(
    sandbox.journal.entries().map(({ body }) => body),
    ['{"seriesId":7}'],
  )
})

t.test('any object passes where the declaration says so, at most 32 deep', async (t) => {
  const { send, sent, refused } = await ready()
  const patch = (body: string) => send('PATCH', '/data/DEMO/things/a', body)
  const deep = (levels: number) => `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`
  for (const body of ['{}', '{"x":[1,{"y":null}],"thing_id":"a"}', deep(32)]) {
    t.equal((await patch(body)).status, 200, body)
    t.equal(sent().body, body.replace('thing_id', 'thingId'))
  }
  refused(t, await patch(deep(33)), /nested more than 32 deep/, 'deep')
  refused(t, await patch(`{"x":[{"y":{"__proto__":1}}]}`), /__proto__/, 'nested')
  refused(t, await patch(`{"x":[{"y":1,"y":1}]}`), /y is there twice/, 'nested')
  refused(t, await patch('{"thingId":"b"}'), /thingId does not agree/, 'another thing')
})

t.test('a body without a declaration is 400, and a POST without one is sent without one', async (t) => {
  const { port, cookie, send, sent, refused } = await ready()
  for (const [method, target] of [
    ['GET', '/data/DEMO/things/a'],
    ['GET', '/flux/a'],
    ['HEAD', '/data/DEMO/things/a'],
    ['DELETE', '/data/DEMO/things/a'],
    ['POST', '/data/DEMO/things/a/start'],
  ] as const) {
    if (method !== 'HEAD') refused(t, await send(method, target, '{}'), /takes no body/, method)
    t.equal((await send(method, target)).status, 200, method)
    t.match(sent(), { method, body: '' })
  }
  for (const [method, target, type] of [
    ['POST', '/data/DEMO/things/a/start', 'application/json'],
    ['DELETE', '/data/DEMO/things/a/on', 'text/csv'],
  ] as const) {
    const headers = [OWN, cookie, ['Content-Type', type], ['Content-Length', '0']] as const
    t.equal((await ask(port, { method, target, headers })).status, 200, `${method}, typed`)
    t.match(sent(), { method, body: '', type }, 'the type names the format')
  }
  const { status } = await send('PUT', '/data/DEMO/Infrastructure/Building/7')
  t.equal(status, 415, 'a body that is missing has no type')
})

t.test('the account of a body is checked, and the default is written where it is absent', async (t) => {
  const { send, sent, refused } = await ready()
  const post = (body: string) => send('POST', '/data/json/reply/Send', body)
  for (const [body, expected] of [
    ['{"x":1}', '{"x":1,"wType":"Send","wac":"DEMO"}'],
    ['{"wac":"ACME"}', '{"wac":"ACME","wType":"Send"}'],
    ['{"W_A_C":"ACME"}', '{"wac":"ACME","wType":"Send"}'],
  ] as const) {
    t.equal((await post(body)).status, 200, body)
    t.equal(sent().body, expected, body)
  }
  const repeated = ['{"wac":"DEMO","WAC":"ACME"}', '{"wac":"DEMO","wac":"ACME"}']
  for (const body of ['{"wac":1}', '{"wac":null}', '{"wac":".."}', '{"wac":"a/b"}', ...repeated])
    refused(t, await post(body), /wac/i, body)
})

t.test('WAC_ALLOWED holds for every way to name an account', async (t) => {
  const { sandbox, send } = await ready({ WAC_ALLOWED: 'DEMO' })
  for (const [call, body, status] of [
    ['GET /flux/ACME/a', undefined, 403],
    ['GET /flux/demo/a', undefined, 403],
    ['PUT /site/ACME/1', '{}', 403],
    ['POST /site', '{"siteID":1,"wac":"ACME"}', 403],
    ['GET /data/ACME/flux', undefined, 403],
    ['GET /data/demo/flux', undefined, 403],
    ['GET /data/%41CME/flux', undefined, 403],
    ['POST /data/json/reply/Send', '{"wac":"ACME"}', 403],
    ['POST /data/json/reply/Send', '{"Wac":"ACME"}', 403],
    ['POST /data/json/reply/Send', '{"wac":"DEMO","wac":"ACME"}', 400],
    ['POST /data/json/reply/Send', '{"wac":"DEMO","w_ac":"ACME"}', 400],
    ['POST /data/json/reply/Send', '{"w_ac":"ACME","wac":"DEMO"}', 400],
    ['POST /data/json/reply/Send?wac=ACME', '{}', 400],
    ['GET /data/DEMO/flux?wac=ACME', undefined, 400],
    ['PATCH /data/DEMO/things/a', '{"wac":"ACME"}', 400],
    ['PUT /data/ACME/Infrastructure/Building/7', '{"name":"N","wac":"DEMO"}', 400],
  ] as const) {
    const [method = '', target = ''] = call.split(' ')
    const answer = await send(method, target, body)
    t.strictSame([answer.status, sandbox.journal.entries()], [status, []], `${call} ${body}`)
  }
  for (const target of ['/data/DEMO/flux', '/flux/DEMO/a', '/flux/a'])
    t.equal((await send('GET', target)).status, 200, target)
})

t.test('the application reads its operations without a session, and no other', async (t) => {
  const { sandbox, bff } = await ready()
  const nobody = bff.browser()
  t.equal((await nobody.fetch('/data/WUM')).status, 200)
  t.match(sandbox.journal.entries(), [{ kind: 'client_credentials' }, { kind: 'ListWUMs', username: null }])
  for (const path of ['/data/DEMO/flux', '/data/DEMO/User/me', '/flux/a'])
    t.match((await nobody.fetch(path)).json(), { code: 'login_required' }, path)
})

t.test('after a refused token a call is sent once more with a new one, a write too', async (t) => {
  for (const [method, target, body, kind] of [
    ['GET', '/data/DEMO/flux', undefined, 'ListFluxes'],
    ['PATCH', '/data/DEMO/things/a', '{"x":1}', 'PatchThing'],
  ] as const) {
    const { sandbox, send } = await ready()
    sandbox.expireAccessTokens()
    t.equal((await send(method, target, body)).status, 200)
    t.match(sandbox.journal.entries(), [{ kind }, { kind: 'refresh_token' }, { kind }], method)
  }
})

t.test('log and OpenAPI know an operation by its name', async (t) => {
  const { bff, port, send } = await ready()
  await send('PUT', '/data/DEMO/Infrastructure/Building/7', '{"name":"N"}')
  t.match(bff.log(), '"operation":"UpdateBuilding","wac":"DEMO","targetId":"7"')
  const document = problemOf(await ask(port, { target: '/openapi.json' })) as {
    paths: Record<string, Record<string, { operationId: string }>>
    components: { schemas: Record<string, object> }
  }
  t.match(document.paths['/data/{wac}/Infrastructure/Building/{buildingId}'], {
    put: { operationId: 'UpdateBuilding', requestBody: {} },
  })
  t.match(document.paths['/data/{wac}/flux'], {
    get: { operationId: 'ListFluxes' },
    head: { operationId: 'headListFluxes' },
  })
  t.match(document.paths['/data/WUM'], { get: { security: [{ session: [] }, {}] } })
  t.match(document.components.schemas.SendReplyBody, { properties: { wac: { type: 'string' } } })
})

t.test(
  'two methods of a path may name its parameters otherwise, and OpenAPI has one path for both',
  async (t) => {
    const { port, send, sent, refused } = await ready()
    t.equal((await send('GET', '/data/DEMO/zones/7')).status, 200)
    t.match(sent(), { method: 'GET', url: '/DEMO/zones/7?format=JSON' })
    t.equal((await send('PUT', '/data/DEMO/zones/a', '{"id":"a"}')).status, 200)
    t.match(sent(), { method: 'PUT', url: '/DEMO/zones/a?format=JSON', body: '{"id":"a"}' })
    refused(t, await send('GET', '/data/DEMO/zones/a'), /zoneId/, 'each by its own rules')
    refused(t, await send('PUT', '/data/DEMO/zones/a', '{"id":"b"}'), /id does not agree/, 'and names')
    const { paths } = problemOf(await ask(port, { target: '/openapi.json' })) as {
      paths: Record<string, Record<string, { parameters: { name: string; in: string; schema: object }[] }>>
    }
    t.strictSame(
      Object.keys(paths).filter((path) => path.includes('zones')),
      ['/data/{wac}/zones/{zoneId}'],
    )
    const { get, put } = paths['/data/{wac}/zones/{zoneId}']!
    for (const [described, example] of [
      [get, '42'],
      [put, 'temperature'],
    ] as const) {
      const inPath = described!.parameters.filter((parameter) => parameter.in === 'path')
      t.match(inPath, [{ name: 'wac' }, { name: 'zoneId', schema: {} }])
      t.match(JSON.stringify(inPath[1]), example, 'each with its own type')
    }
  },
)

t.test('without operations /data belongs to the page, except as a return address', async (t) => {
  const folder = t.testdir({ 'index.html': '<p>page</p>', data: { 'a.json': '{}' } })
  const without = await shared({ STATIC_DIR: folder })
  t.equal((await ask(without.port, { target: '/data/a.json' })).status, 200)
  const login = await ask(without.port, { target: '/auth/login?returnTo=/data/x' })
  t.match(problemOf(login), { code: 'invalid_return_to' })
  const { port } = await shared(environment({ STATIC_DIR: folder }), OPTIONS)
  t.equal((await ask(port, { target: '/data/a.json' })).status, 404)
  for (const [target, status] of [
    ['/data/DEMO/flux', 401],
    ['/data/DEMO/Zone', 404],
  ] as const) {
    const page = await ask(port, { target, headers: [['Sec-Fetch-Mode', 'navigate'], OWN] })
    t.match([page.status, field(page, 'content-type')], [status, 'text/html'], 'a failed navigation')
  }
})
