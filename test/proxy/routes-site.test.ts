import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import type { Question, WireAnswer } from '../http/wire.ts'
import { ask, field, OWN, portOf, problemOf } from '../http/wire.ts'

const JSON_TYPE = ['Content-Type', 'application/json'] as const

async function ready(t: Test, env: Record<string, string> = {}) {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, env)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.journal.clear()
  const cookie = ['Cookie', `session=${browser.cookies.get('session')!.value}`] as const
  const send = (question: Question): Promise<WireAnswer> =>
    ask(portOf(bff), { ...question, headers: [OWN, cookie, ...(question.headers ?? [JSON_TYPE])] })
  return {
    sandbox,
    send,
    put: (body: string, target = '/site/42') => send({ method: 'PUT', target, body }),
    post: (body: string, target = '/site') => send({ method: 'POST', target, body }),
    /** The one request that went out since the last look. */
    sent() {
      const entries = sandbox.journal.entries()
      sandbox.journal.clear()
      t.equal(entries.length, 1, 'one request goes out')
      const { method, url, headers, body } = entries[0]!
      return {
        method,
        url,
        type: headers['content-type'],
        accept: headers.accept,
        body: JSON.parse(body ?? 'null') as unknown,
      }
    },
  }
}

t.test('a PUT becomes the documented one, with what the path says filled in', async (t) => {
  const { put, sent } = await ready(t)
  const answer = await put(
    '{"name":"N","description":"D","code":"C","parentInfrastructureID":7}',
    '/site/ACME/42',
  )
  t.equal(answer.status, 200)
  t.match(field(answer, 'content-type'), /^application\/json/)
  t.match(problemOf(answer), { wType: 'Site', id: 42, name: 'N' })
  t.strictSame(sent(), {
    method: 'PUT',
    url: '/ACME/Infrastructure/Site/42',
    type: 'application/json',
    accept: 'application/json',
    body: {
      wType: 'UpdateSite',
      siteID: 42,
      name: 'N',
      description: 'D',
      code: 'C',
      parentInfrastructureID: 7,
      wac: 'ACME',
    },
  })
})

t.test('a POST becomes the documented one, with the account of the body or the default', async (t) => {
  const { post, sent } = await ready(t)
  for (const [body, wac] of [
    ['{"siteID":42,"name":"N"}', 'DEMO'],
    ['{"siteID":42,"name":"N","wac":"ACME"}', 'ACME'],
    ['{"wType":"UpdateSite","siteID":42,"name":"N","wac":"DEMO"}', 'DEMO'],
  ] as const) {
    t.equal((await post(body)).status, 200, body)
    t.match(sent(), {
      method: 'POST',
      url: '/json/reply/UpdateSite',
      type: 'application/json',
      body: { wType: 'UpdateSite', siteID: 42, name: 'N', wac },
    })
  }
})

t.test('a parent is sent as a number or null, and one that is absent is not sent', async (t) => {
  const { put, sent } = await ready(t)
  for (const [given, expected] of [
    ['{}', undefined],
    ['{"parentInfrastructureID":null}', null],
    ['{"parentInfrastructureID":0}', 0],
    ['{"parentInfrastructureID":9007199254740991}', 9007199254740991],
    ['{"parentInfrastructureID":1.0}', 1],
    ['{"parentInfrastructureID":1e3}', 1000],
  ] as const) {
    t.equal((await put(given)).status, 200, given)
    const { body } = sent() as { body: Record<string, unknown> }
    t.equal('parentInfrastructureID' in body, expected !== undefined, given)
    t.equal(body.parentInfrastructureID, expected, given)
  }
})

t.test('texts go through to the last character', async (t) => {
  const { put, sent } = await ready(t)
  for (const name of [
    '',
    ' ',
    'ä€😀',
    '\u2028\u0000"\\/',
    '</script>',
    '9007199254740993',
    'x'.repeat(60_000),
  ]) {
    t.equal((await put(JSON.stringify({ name }))).status, 200)
    t.match((sent() as { body: unknown }).body, { name })
  }
  t.equal((await put('\ufeff{"name":"N"}')).status, 200, 'with a byte order mark')
  t.match((sent() as { body: unknown }).body, { name: 'N' })
})

t.test('members that agree with the path may be given', async (t) => {
  const { put, sent } = await ready(t)
  t.equal((await put('{"siteID":42,"wac":"ACME","wType":"UpdateSite"}', '/site/ACME/42')).status, 200)
  t.strictSame((sent() as { body: unknown }).body, { siteID: 42, wac: 'ACME', wType: 'UpdateSite' })
  t.equal((await put('{"siteID":42,"wac":"DEMO"}')).status, 200, 'or with the default')
})

const BAD_BODIES: readonly (readonly [body: string, names: RegExp])[] = [
  ['', /empty/],
  ['{', /JSON/],
  ['{"name":"N"', /JSON/],
  ["{'name':'N'}", /JSON/],
  ['{"name":"N",}', /JSON/],
  ['{"name":"N"}x', /JSON/],
  ['undefined', /JSON/],
  ['{"siteID":042}', /JSON/],
  ['{"siteID":NaN}', /JSON/],
  ['null', /object/],
  ['[]', /object/],
  ['[{"name":"N"}]', /object/],
  ['"name"', /object/],
  ['42', /object/],
  ['true', /object/],
  ['{"name":1}', /name/],
  ['{"name":null}', /name/],
  ['{"name":["N"]}', /name/],
  ['{"description":true}', /description/],
  ['{"code":{}}', /code/],
  ['{"code":0}', /code/],
  ['{"parentInfrastructureID":"7"}', /parentInfrastructureID/],
  ['{"parentInfrastructureID":""}', /parentInfrastructureID/],
  ['{"parentInfrastructureID":1.5}', /parentInfrastructureID/],
  ['{"parentInfrastructureID":9007199254740992}', /parentInfrastructureID/],
  ['{"parentInfrastructureID":9007199254740993}', /parentInfrastructureID/],
  ['{"parentInfrastructureID":-9007199254740993}', /parentInfrastructureID/],
  ['{"parentInfrastructureID":1e400}', /parentInfrastructureID/],
  ['{"parentInfrastructureID":false}', /parentInfrastructureID/],
  ['{"siteID":43}', /siteID/],
  ['{"siteID":"42"}', /siteID/],
  ['{"siteID":null}', /siteID/],
  ['{"siteID":42.5}', /siteID/],
  ['{"siteID":-42}', /siteID/],
  ['{"siteID":9007199254740993}', /siteID/],
  ['{"wac":"ACME"}', /wac/],
  ['{"wac":"demo"}', /wac/],
  ['{"wac":""}', /wac/],
  ['{"wac":null}', /wac/],
  ['{"wac":"../x"}', /wac/],
  ['{"wac":"DEMO\\n"}', /wac/],
  ['{"wType":"Site"}', /wType/],
  ['{"wType":"updatesite"}', /wType/],
  ['{"wType":null}', /wType/],
  ['{"Name":"N"}', /Name/],
  ['{"SiteID":42}', /SiteID/],
  ['{"id":42}', /\bid\b/],
  ['{"picture":"x"}', /picture/],
  ['{"access_token":"x"}', /access_token/],
  ['{"constructor":"x"}', /constructor/],
  ['{"toString":"x"}', /toString/],
  ['{"":1}', /member/],
  ['{"__proto__":{"name":"N"}}', /./],
  ['{"constructor":{"prototype":{"name":"N"}}}', /./],
  ['{"name":"N","__proto__":null}', /./],
]

t.test('a body that is anything else is 400 and names the member, and nothing goes out', async (t) => {
  const { sandbox, put, post } = await ready(t)
  for (const [body, names] of BAD_BODIES) {
    const answer = await put(body)
    t.equal(answer.status, 400, `PUT ${body}`)
    t.match(problemOf(answer), { code: 'invalid_request', detail: names }, `PUT ${body}`)
  }
  for (const body of ['{}', '{"name":"N"}', '{"wac":"DEMO"}']) {
    const answer = await post(body)
    t.equal(answer.status, 400, `POST ${body}`)
    t.match(problemOf(answer), { code: 'invalid_request', detail: /siteID/ }, `POST ${body}`)
  }
  for (const body of [
    '{"siteID":"42"}',
    '{"siteID":9007199254740993}',
    '{"siteID":-1}',
    '{"siteID":1,"wac":"a/b"}',
    '{"siteID":1,"x":1}',
  ]) {
    t.equal((await post(body)).status, 400, `POST ${body}`)
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('a name that is not known is cut in the answer', async (t) => {
  const { put } = await ready(t)
  const answer = await put(JSON.stringify({ ['x'.repeat(10_000)]: 1 }))
  t.equal(answer.status, 400)
  t.ok(answer.body.length < 500)
})

t.test('only JSON in UTF-8 that is not compressed is taken, else 415', async (t) => {
  const { sandbox, send, sent } = await ready(t)
  const site = { method: 'PUT', target: '/site/42', body: '{}' }
  for (const type of [
    'application/json',
    'Application/JSON',
    'application/json; charset=utf-8',
    'application/json;charset=UTF-8',
    'application/json; charset="utf-8"',
    'application/json ;charset=utf-8',
    'application/json;',
  ]) {
    t.equal((await send({ ...site, headers: [['Content-Type', type]] })).status, 200, type)
    sent()
  }
  for (const headers of [
    [],
    [['Content-Type', '']],
    [['Content-Type', 'text/plain']],
    [['Content-Type', 'text/plain;charset=UTF-8']],
    [['Content-Type', 'application/x-www-form-urlencoded']],
    [['Content-Type', 'multipart/form-data; boundary=x']],
    [['Content-Type', 'text/json']],
    [['Content-Type', 'application/jsonx']],
    [['Content-Type', 'application/json garbage']],
    [['Content-Type', 'application/json; charset=utf-16']],
    [['Content-Type', 'application/json; charset=latin1']],
    [['Content-Type', 'application/ld+json']],
    [['Content-Type', 'application/problem+json']],
    [['Content-Type', 'text/plain, application/json']],
    [
      ['Content-Type', 'application/json'],
      ['Content-Encoding', 'gzip'],
    ],
    [
      ['Content-Type', 'application/json'],
      ['Content-Encoding', 'br'],
    ],
    [
      ['Content-Type', 'application/json'],
      ['Content-Encoding', 'identity, gzip'],
    ],
  ] as const) {
    for (const question of [site, { method: 'POST', target: '/site', body: '{"siteID":42}' }]) {
      const answer = await send({ ...question, headers })
      const what = `${question.method} ${JSON.stringify(headers)}`
      t.equal(answer.status, 415, what)
      t.match(problemOf(answer), { code: 'unsupported_media_type' }, what)
    }
  }
  const body = gzipSync('{}').toString('latin1')
  t.equal((await send({ ...site, body, headers: [JSON_TYPE, ['Content-Encoding', 'gzip']] })).status, 415)
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('a body over the limit is 413, also where its length is not told', async (t) => {
  const { sandbox, send, put, sent } = await ready(t, { BODY_LIMIT_BYTES: '300' })
  const fits = JSON.stringify({ name: 'x'.repeat(300 - '{"name":""}'.length) })
  t.equal((await put(fits)).status, 200)
  sent()
  for (const answer of [
    await put(`${fits} `),
    await put('x'.repeat(5_000)),
    await send({ method: 'POST', target: '/site', body: `{"siteID":1,"name":"${'ä'.repeat(150)}"}` }),
    await send({
      method: 'PUT',
      target: '/site/42',
      headers: [JSON_TYPE, ['Transfer-Encoding', 'chunked']],
      chunked: '{"name":"'.padEnd(5_000, 'x'),
    }),
  ]) {
    t.equal(answer.status, 413)
    t.match(problemOf(answer), { code: 'payload_too_large' })
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('a suffix or a parameter asks for JSON, and a callback for a script', async (t) => {
  const { put, post, sent } = await ready(t)
  for (const [target, query] of [
    ['/site/42', ''],
    ['/site/42.json', '?format=json'],
    ['/site/DEMO/42.json', '?format=json'],
    ['/site/42?format=json', '?format=json'],
    ['/site/42?format=JSON', '?format=json'],
    ['/site/42.json?format=json', '?format=json'],
    ['/site/42?callback=cb', '?callback=cb'],
    ['/site/42.json?callback=cb', '?format=json&callback=cb'],
    ['/site/42?callback=a.b_$.c9&format=json', '?format=json&callback=a.b_$.c9'],
    ['/site/42?c%61llback=%63b', '?callback=cb'],
    [`/site/42?callback=${'c'.repeat(64)}`, `?callback=${'c'.repeat(64)}`],
  ] as const) {
    const answer = await put('{"name":"N"}', target)
    t.equal(answer.status, 200, target)
    t.equal(sent().url, `/DEMO/Infrastructure/Site/42${query}`, target)
    t.equal(field(answer, 'x-content-type-options'), 'nosniff', target)
    const [, name] = /callback=(.*)/.exec(query) ?? []
    if (name === undefined) t.match(problemOf(answer), { wType: 'Site' }, target)
    else {
      t.ok(answer.body.startsWith(`${name}(`), `${target}: ${answer.body.slice(0, 30)}`)
      t.match(field(answer, 'content-type'), /javascript/, target)
    }
  }
  for (const [target, query] of [
    ['/site?format=json', '?format=json'],
    ['/site?callback=cb', '?callback=cb'],
    ['/site.json', '?format=json'],
  ] as const) {
    t.equal((await post('{"siteID":42}', target)).status, 200, target)
    t.equal(sent().url, `/json/reply/UpdateSite${query}`, target)
  }
})

t.test('any other parameter, and a callback that is no name, is 400', async (t) => {
  const { sandbox, put, post } = await ready(t)
  for (const query of [
    'a=1',
    'access_token=x',
    'oauth_token=x',
    'format=xml',
    'format=',
    'format=json&format=json',
    'Format=json',
    'Callback=cb',
    'callback=',
    'callback',
    'callback=a&callback=b',
    'callback=1a',
    'callback=a-b',
    'callback=a.',
    'callback=.a',
    'callback=a..b',
    'callback=a()',
    'callback=a[0]',
    'callback=alert(1)//',
    'callback=a%0a',
    'callback=a%20b',
    'callback=%3Cscript%3E',
    'callback=ä',
    'callback=%C3%A4',
    `callback=${'c'.repeat(65)}`,
    'callback=a;b',
    'siteID=42',
    'wac=ACME',
    '=x',
    '%',
  ]) {
    for (const answer of [
      await put('{}', `/site/42?${query}`),
      await post('{"siteID":42}', `/site?${query}`),
    ]) {
      t.equal(answer.status, 400, query)
      t.match(problemOf(answer), { code: 'invalid_request' }, query)
      t.notMatch(answer.body, /<script/, query)
    }
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('a script that was not asked for is not relayed', async (t) => {
  const { sandbox, put } = await ready(t)
  sandbox.faults.set({ resourceHeaders: { 'content-type': 'text/javascript' } })
  t.equal((await put('{}')).status, 502)
  t.equal((await put('{}', '/site/42?callback=cb')).status, 200)
})

t.test('an update is not repeated when its answer is lost', async (t) => {
  const { sandbox, put } = await ready(t)
  sandbox.faults.set({ resource: { mode: 'drop', point: 'after' } })
  t.equal((await put('{"name":"N"}')).status, 502)
  t.equal(sandbox.journal.entries().length, 1)
})
