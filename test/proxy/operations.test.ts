import { writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { ask, field, OWN, portOf, problemOf, type WireAnswer } from '../http/wire.ts'

const OPERATIONS = {
  ListFluxes: {
    method: 'GET',
    path: '/{wac}/flux',
    query: {
      skip: 'integer',
      take: { integer: [1, 1000] },
      search: 'text',
      factor: 'number',
      deep: 'boolean',
      order: { enum: ['up', 'down ü'] },
    },
    formats: ['JSON', 'CSV'],
  },
  GetSite: { method: 'GET', path: '/{wac}/Infrastructure/Site/{siteId}', parameters: { siteId: 'integer' } },
  GetThing: { method: 'GET', path: '/{wac}/things/{thingId}', parameters: { thingId: 'id' } },
  ListKind: {
    method: 'GET',
    path: '/{wac}/kinds/{kind}/all',
    parameters: { kind: { enum: ['red', 'blue'] } },
  },
  ListWUMs: { method: 'GET', path: '/WUM', account: 'none', application: true },
  GetMe: { method: 'GET', path: '/{wac}/User/me' },
  UpdateBuilding: {
    method: 'PUT',
    path: '/{wac}/Infrastructure/Building/{buildingId}',
    parameters: { buildingId: 'integer' },
    body: {
      set: { wType: 'UpdateBuilding', buildingID: '{buildingId}', wac: '{wac}' },
      schema: {
        type: 'object',
        additionalProperties: false,
        required: ['name'],
        properties: { name: { type: 'string' }, height: { type: 'number' } },
      },
    },
  },
  PatchThing: {
    method: 'PATCH',
    path: '/{wac}/things/{thingId}',
    parameters: { thingId: 'id' },
    body: 'any',
  },
  SendReply: {
    method: 'POST',
    path: '/json/reply/Send',
    account: 'body',
    body: { any: true, set: { wType: 'Send' } },
  },
  ResetThing: {
    method: 'POST',
    path: '/{wac}/things/{thingId}/reset',
    parameters: { thingId: 'id' },
    body: { set: { wType: 'Reset' }, schema: { type: 'object', required: ['wType'] } },
  },
  StartThing: { method: 'POST', path: '/{wac}/things/{thingId}/start', parameters: { thingId: 'id' } },
  PatchSeries: {
    method: 'PATCH',
    path: '/{wac}/series/{seriesId}',
    parameters: { seriesId: 'integer' },
    body: 'any',
  },
  CountThings: { method: 'GET', path: '/{wac}/things/count/all' },
  StopThing: {
    method: 'DELETE',
    path: '/{wac}/things/{other}/{state}',
    parameters: { other: 'id', state: 'id' },
    formats: ['JSON', 'CSV'],
  },
  DeleteThing: { method: 'DELETE', path: '/{wac}/things/{thingId}', parameters: { thingId: 'id' } },
}

const JSON_TYPE = ['Content-Type', 'application/json'] as const

async function ready(t: Test, env: Record<string, string> = {}) {
  const folder = makeFolder('operations')
  writeFileSync(`${folder}/operations.json`, JSON.stringify({ operations: OPERATIONS }))
  const sandbox = await startSandbox(t, {
    operations: Object.entries(OPERATIONS).map(([name, { method, path }]) => ({
      name,
      method,
      url: path.replace(/\{(\w+)\}/g, ':$1'),
    })),
  })
  const bff = await startBff(t, sandbox, {
    OPERATIONS_FILE: `${folder}/operations.json`,
    OAUTH_FLOWS: 'code,client',
    ...env,
  })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.journal.clear()
  const cookie = ['Cookie', `session=${browser.cookies.get('session')!.value}`] as const
  const send = (method: string, target: string, body?: string): Promise<WireAnswer> =>
    ask(portOf(bff), {
      method,
      target,
      headers: [OWN, cookie, ...(body === undefined ? [] : [JSON_TYPE])],
      ...(body === undefined ? {} : { body }),
    })
  return {
    sandbox,
    bff,
    browser,
    send,
    /** The one request that reached the resource server since the last call. */
    sent() {
      const entries = sandbox.journal.entries({ endpoint: 'resource' })
      sandbox.journal.clear()
      if (entries.length !== 1) throw new Error(`${entries.length} requests went upstream`)
      const { method, url, body, headers, kind } = entries[0]!
      return { kind, method, url, body, type: headers['content-type'], accept: headers.accept }
    },
    /** Asserts a 400 whose detail names this, and that nothing was sent. */
    async refused(answer: Promise<WireAnswer>, names: RegExp, what: string) {
      const { status, ...rest } = await answer
      t.equal(status, 400, what)
      t.match(problemOf({ status, ...rest }), { code: 'invalid_request', detail: names }, what)
      t.equal(sandbox.journal.entries().length, 0, what)
    },
  }
}

t.test('a declared GET is sent as declared, and its response comes byte for byte', async (t) => {
  const { send, sent } = await ready(t)
  const answer = await send('GET', '/data/DEMO/Infrastructure/Site/42')
  t.equal(answer.status, 200)
  t.match(problemOf(answer), { wType: 'Site', id: 42 })
  t.strictSame(sent(), {
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
  const { send, sent, refused } = await ready(t)
  for (const path of [
    '/DEMO/things/a.b~c-d_E',
    '/DEMO/things/...',
    '/my.acc~1/things/0',
    '/DEMO/kinds/red/all',
    '/DEMO/Infrastructure/Site/9007199254740991',
  ]) {
    await send('GET', `/data${path}`)
    t.equal(sent().url, `${path}?format=JSON`, path)
  }
  for (const id of ['-1', '+1', '01', '1.0', '1e3', '9007199254740992', '%D9%A1', '%31%2f', 'a', '1%20'])
    await refused(send('GET', `/data/DEMO/Infrastructure/Site/${id}`), /siteId/, id)
  for (const id of [
    '.',
    '..',
    '%2e%2e',
    'a%2fb',
    'a%252fb',
    'a%20b',
    'a;b',
    'a:b',
    '%c3%a9',
    'a'.repeat(129),
    'a%00',
    'a+b',
  ])
    await refused(send('GET', `/data/DEMO/things/${id}`), /thingId/, id)
  for (const kind of ['green', 'Red', 'red%00', 'constructor'])
    await refused(send('GET', `/data/DEMO/kinds/${kind}/all`), /kind/, kind)
  for (const wac of ['..', 'a%2fb', 'W'.repeat(65)])
    await refused(send('GET', `/data/${wac}/flux`), /wac/, wac)
})

t.test('what is not declared does not pass', async (t) => {
  const { sandbox, send } = await ready(t)
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
  const { send, sent, refused } = await ready(t)
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
    ...[
      'other=1',
      'Skip=1',
      'skip=1&skip=1',
      'skip=1&s%6bip=2',
      'wac=ACME',
      'WAC=DEMO',
      'access_token=x',
      'callback=x',
    ],
    ...[
      'skip=01',
      'skip=+1',
      'skip=-0',
      'skip=1.0',
      'skip=1e3',
      'skip=',
      'skip=9007199254740992',
      'skip=1%00',
      'skip=%D9%A1',
    ],
    ...[
      'take=0',
      'take=1001',
      'take=-1',
      'factor=.5',
      'factor=1.',
      'factor=00.1',
      'factor=1e3',
      'factor=NaN',
    ],
    ...[
      'factor=1234567890123456',
      'factor=0.1234567890123456',
      'deep=True',
      'deep=1',
      'order=Up',
      'order=constructor',
    ],
    ...[
      `search=${'x'.repeat(513)}`,
      'search=a%0Ab',
      'search=%00',
      'search=%ED%A0%80',
      'format=XML',
      'format=JSON&format=JSON',
    ],
  ])
    await refused(send('GET', `/data/DEMO/flux?${query}`), /parameter/i, query)
})

t.test('a format is chosen among the declared ones, as for a Flux', async (t) => {
  const { bff, browser, sent } = await ready(t)
  const cookie = ['Cookie', `session=${browser.cookies.get('session')!.value}`] as const
  const get = (...headers: (readonly [string, string])[]) =>
    ask(portOf(bff), { target: '/data/DEMO/flux', headers: [OWN, cookie, ...headers] })
  for (const [headers, format, type] of [
    [[['Accept', 'text/csv']], 'CSV', 'text/csv'],
    [[['Accept', 'application/xml, text/csv;q=0.1']], 'CSV', 'text/csv'],
    [[['Content-Type', 'text/csv']], 'CSV', 'text/csv'],
    [[['Content-Type', 'application/xml']], 'JSON', 'application/json'],
    [[['Accept', 'text/html']], 'JSON', 'application/json'],
  ] as const) {
    await get(...headers)
    t.match(sent(), { url: `/DEMO/flux?format=${format}`, accept: type, type }, JSON.stringify(headers))
  }
  t.match(problemOf(await get(['Accept', 'application/xml'])), { code: 'not_acceptable' })
})

t.test('a body is validated, completed and written again', async (t) => {
  const { send, sent, refused } = await ready(t)
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
    t.match(
      sent(),
      {
        method: 'PUT',
        url: '/DEMO/Infrastructure/Building/7?format=JSON',
        body: expected,
        type: 'application/json',
      },
      body,
    )
  }
  t.equal(
    (await send('POST', '/data/DEMO/things/a/reset', '{}')).status,
    200,
    'a required member is filled in',
  )
  t.match(sent(), { body: '{"wType":"Reset"}' })
  for (const [body, names] of [
    ['{}', /name is missing/],
    ['{"name":1}', /name/],
    ['{"name":"N","other":1}', /other is not known/],
    ['{"name":"N","buildingID":8}', /buildingID does not agree/],
    ['{"name":"N","buildingID":"7"}', /buildingID does not agree/],
    ['{"name":"N","buildingId":7,"BUILDING_ID":7}', /buildingID is there twice/],
    ['{"name":"N","wac":"ACME"}', /wac does not agree/],
    ['{"name":"N","Wac":"DEMO","wac":"DEMO"}', /wac is there twice/],
    ['{"name":"N","wType":"Other"}', /wType does not agree/],
    ['{"name":"N","name":"M"}', /name is there twice/],
    ['{"name":"N","__proto__":{}}', /__proto__ is not known/],
    ['{"name":"N","constructor":1}', /constructor is not known/],
    ['{"name":"N","height":9007199254740993}', /height is a number that cannot be passed on unchanged/],
    ['{"name":"N","height":0.1234567890123456}', /height is a number/],
    ['{"name":"N","height":1e400}', /height is a number/],
    ['[]', /JSON object/],
    ['null', /JSON object/],
    ['"x"', /JSON object/],
    ['{', /not valid JSON/],
    ['', /empty/],
    ['[object Object]', /JSON\.stringify/],
  ] as const)
    await refused(put(body), names, body)
})

t.test('a member is compared with every letter that a platform may take for the same', async (t) => {
  const { sandbox, send } = await ready(t)
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
  const { send, sent, refused } = await ready(t)
  const patch = (body: string) => send('PATCH', '/data/DEMO/things/a', body)
  const deep = (levels: number) => `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`
  for (const body of ['{}', '{"x":[1,{"y":null}],"thing_id":"a"}', deep(32)]) {
    t.equal((await patch(body)).status, 200, body)
    t.equal(sent().body, body.replace('thing_id', 'thingId'))
  }
  await refused(patch(deep(33)), /nested more than 32 deep/, 'deep')
  await refused(patch(`{"x":[{"y":{"__proto__":1}}]}`), /__proto__/, 'nested')
  await refused(patch(`{"x":[{"y":1,"y":1}]}`), /y is there twice/, 'nested')
  await refused(patch('{"thingId":"b"}'), /thingId does not agree/, 'another thing')
})

t.test('a body without a declaration is 400, and a POST without one is sent without one', async (t) => {
  const caller = await ready(t)
  const { send, sent, refused } = caller
  for (const [method, target] of [
    ['GET', '/data/DEMO/things/a'],
    ['GET', '/flux/a'],
    ['HEAD', '/data/DEMO/things/a'],
    ['DELETE', '/data/DEMO/things/a'],
    ['POST', '/data/DEMO/things/a/start'],
  ] as const) {
    if (method !== 'HEAD') await refused(send(method, target, '{}'), /takes no body/, method)
    t.equal((await send(method, target)).status, 200, method)
    t.match(sent(), { method, body: '' })
  }
  const { bff, browser } = caller
  const cookie = ['Cookie', `session=${browser.cookies.get('session')!.value}`] as const
  for (const [method, target, type] of [
    ['POST', '/data/DEMO/things/a/start', 'application/json'],
    ['DELETE', '/data/DEMO/things/a/on', 'text/csv'],
  ] as const) {
    const headers = [OWN, cookie, ['Content-Type', type], ['Content-Length', '0']] as const
    t.equal((await ask(portOf(bff), { method, target, headers })).status, 200, `${method}, typed`)
    t.match(sent(), { method, body: '', type }, 'the type names the format')
  }
  const { status } = await send('PUT', '/data/DEMO/Infrastructure/Building/7')
  t.equal(status, 415, 'a body that is missing has no type')
})

t.test('a body over the limit is 413', async (t) => {
  const { sandbox, send } = await ready(t, { BODY_LIMIT_BYTES: '300' })
  t.equal((await send('PATCH', '/data/DEMO/things/a', JSON.stringify({ x: 'x'.repeat(300) }))).status, 413)
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('the account of a body is checked, and the default is written where it is absent', async (t) => {
  const { send, sent, refused } = await ready(t)
  const post = (body: string) => send('POST', '/data/json/reply/Send', body)
  for (const [body, expected] of [
    ['{"x":1}', '{"x":1,"wType":"Send","wac":"DEMO"}'],
    ['{"wac":"ACME"}', '{"wac":"ACME","wType":"Send"}'],
    ['{"W_A_C":"ACME"}', '{"wac":"ACME","wType":"Send"}'],
  ] as const) {
    t.equal((await post(body)).status, 200, body)
    t.equal(sent().body, expected, body)
  }
  for (const body of [
    '{"wac":1}',
    '{"wac":null}',
    '{"wac":".."}',
    '{"wac":"a/b"}',
    '{"wac":"DEMO","WAC":"ACME"}',
    '{"wac":"DEMO","wac":"ACME"}',
  ])
    await refused(post(body), /wac/i, body)
})

t.test('WAC_ALLOWED holds for every way to name an account', async (t) => {
  const { sandbox, send } = await ready(t, { WAC_ALLOWED: 'DEMO' })
  for (const [method, target, body, status] of [
    ['GET', '/data/ACME/flux', undefined, 403],
    ['GET', '/data/demo/flux', undefined, 403],
    ['GET', '/data/%41CME/flux', undefined, 403],
    ['POST', '/data/json/reply/Send', '{"wac":"ACME"}', 403],
    ['POST', '/data/json/reply/Send', '{"Wac":"ACME"}', 403],
    ['POST', '/data/json/reply/Send', '{"wac":"DEMO","wac":"ACME"}', 400],
    ['POST', '/data/json/reply/Send', '{"wac":"DEMO","w_ac":"ACME"}', 400],
    ['POST', '/data/json/reply/Send', '{"w_ac":"ACME","wac":"DEMO"}', 400],
    ['POST', '/data/json/reply/Send?wac=ACME', '{}', 400],
    ['GET', '/data/DEMO/flux?wac=ACME', undefined, 400],
    ['PATCH', '/data/DEMO/things/a', '{"wac":"ACME"}', 400],
    ['PUT', '/data/ACME/Infrastructure/Building/7', '{"name":"N","wac":"DEMO"}', 400],
  ] as const) {
    t.equal((await send(method, target, body)).status, status, `${method} ${target} ${body}`)
    t.equal(sandbox.journal.entries().length, 0, `${method} ${target} ${body}`)
  }
  t.equal((await send('GET', '/data/DEMO/flux')).status, 200)
})

t.test('the application reads its operations without a session, and no other', async (t) => {
  const { sandbox, bff } = await ready(t)
  const nobody = bff.browser()
  t.equal((await nobody.fetch('/data/WUM')).status, 200)
  t.match(
    sandbox.journal.entries().map(({ kind }) => kind),
    ['client_credentials', 'ListWUMs'],
  )
  t.equal(sandbox.journal.entries({ endpoint: 'resource' })[0]?.username, null, 'without a user')
  for (const path of ['/data/DEMO/flux', '/data/DEMO/User/me', '/flux/a'])
    t.match((await nobody.fetch(path)).json(), { code: 'login_required' }, path)
})

t.test('a session has its own token for an operation of the application', async (t) => {
  const { sandbox, browser } = await ready(t)
  await browser.fetch('/data/WUM')
  t.strictSame(
    sandbox.journal.entries().map(({ kind, username }) => [kind, username]),
    [['ListWUMs', 'alice']],
  )
})

t.test('a request of another origin is refused before it is read', async (t) => {
  const { sandbox, bff } = await ready(t)
  const answer = await ask(portOf(bff), {
    method: 'PUT',
    target: '/data/DEMO/Infrastructure/Building/x',
    headers: [['Sec-Fetch-Site', 'cross-site'], JSON_TYPE],
    body: '{',
  })
  t.match(problemOf(answer), { code: 'cross_origin' })
  t.equal(sandbox.journal.entries().length, 0)
})

for (const [method, target, body, kind] of [
  ['GET', '/data/DEMO/flux', undefined, 'ListFluxes'],
  ['PATCH', '/data/DEMO/things/a', '{"x":1}', 'PatchThing'],
] as const) {
  t.test(`after a refused token a ${method} is sent once more with a new one`, async (t) => {
    const { sandbox, send } = await ready(t)
    sandbox.expireAccessTokens()
    t.equal((await send(method, target, body)).status, 200)
    const kinds = sandbox.journal.entries().map((entry) => entry.kind)
    t.strictSame(kinds, [kind, 'refresh_token', kind])
  })
}

t.test(
  'a write is not repeated when its response is lost, and a read is not either after the begin',
  async (t) => {
    const { sandbox, send } = await ready(t)
    sandbox.faults.set({ resource: { mode: 'drop', point: 'after' } })
    for (const [method, target, body] of [
      ['PATCH', '/data/DEMO/things/a', '{"x":1}'],
      ['DELETE', '/data/DEMO/things/a', undefined],
      ['POST', '/data/DEMO/things/a/start', undefined],
    ] as const) {
      sandbox.journal.clear()
      t.equal((await send(method, target, body)).status, 502, method)
      t.equal(sandbox.journal.entries().length, 1, method)
    }
  },
)

t.test('metrics, log and OpenAPI know an operation by its name', async (t) => {
  const { bff, send } = await ready(t)
  await send('PUT', '/data/DEMO/Infrastructure/Building/7', '{"name":"N"}')
  const metrics = await (await fetch(`${bff.opsUrl}/metrics`)).text()
  t.match(metrics, /bff_upstream_duration_seconds_count\{operation="UpdateBuilding",status="200"\} 1/)
  t.match(metrics, /route="\/data\/:wac\/Infrastructure\/Building\/:buildingId"/)
  const line = bff
    .log()
    .split('\n')
    .find((text) => text.includes('"UpdateBuilding"'))
  t.match(JSON.parse(line ?? '{}'), {
    event: 'request',
    operation: 'UpdateBuilding',
    wac: 'DEMO',
    targetId: '7',
  })
  const document = problemOf(await ask(portOf(bff), { target: '/openapi.json' })) as {
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
  'OpenAPI has the schema of each body, whatever the operation is called and however it refers to itself',
  async (t) => {
    const object = { type: 'object', additionalProperties: false }
    const tree = { ...object, properties: { child: { $ref: '#/$defs/tree' } } }
    const operations = {
      // As the schemas of UpdateSite.
      SiteUpdate: {
        ...object,
        properties: { name: { $ref: '#/definitions/name' } },
        definitions: { name: { type: 'string' } },
      },
      SiteUpdateIn: { ...object, properties: { tree: { $ref: '#/$defs/tree' } }, $defs: { tree } },
      SiteUpdateWithTarget: { ...object, properties: { again: { $ref: '#' } } },
    }
    const declared = Object.entries(operations).map(([name, schema]) => [
      name,
      { method: 'PUT', path: `/{wac}/${name}`, body: { schema } },
    ])
    const file = `${makeFolder('operations')}/bodies.json`
    writeFileSync(file, JSON.stringify({ operations: Object.fromEntries(declared) }))
    const bff = await startBff(t, await startSandbox(t), { OPERATIONS_FILE: file })
    const text = (await ask(portOf(bff), { target: '/openapi.json' })).body
    const document = JSON.parse(text)
    for (const name of Object.keys(operations)) t.ok(document.components.schemas[`${name}Body`], name)
    const lost = [...text.matchAll(/"\$ref":"#\/([^"]+)"/g)].filter(
      ([, path]) => path!.split('/').reduce((part, key) => part?.[key], document) === undefined,
    )
    t.strictSame(lost, [])
  },
)

t.test('a failed navigation to an operation gets a page', async (t) => {
  const { bff } = await ready(t)
  const headers = [['Sec-Fetch-Mode', 'navigate'], OWN] as const
  for (const [target, status] of [
    ['/data/DEMO/flux', 401],
    ['/data/DEMO/Zone', 404],
  ] as const) {
    const answer = await ask(portOf(bff), { target, headers })
    t.equal(answer.status, status, target)
    t.match(field(answer, 'content-type'), 'text/html', target)
  }
})

t.test('without operations /data belongs to the page, except as a return address', async (t) => {
  const folder = t.testdir({ 'index.html': '<p>page</p>', data: { 'a.json': '{}' } })
  const sandbox = await startSandbox(t)
  const without = await startBff(t, sandbox, { STATIC_DIR: folder })
  t.equal((await ask(portOf(without), { target: '/data/a.json' })).status, 200)
  const login = await ask(portOf(without), { target: '/auth/login?returnTo=/data/x' })
  t.match(problemOf(login), { code: 'invalid_return_to' })
  const { bff } = await ready(t, { STATIC_DIR: folder })
  t.equal((await ask(portOf(bff), { target: '/data/a.json' })).status, 404)
})
