import { gzipSync } from 'node:zlib'
import t from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { problemOf } from '../http/wire.ts'
import { JSON_TYPE, siteCaller } from './site-caller.ts'

const BAD_BODIES: readonly (readonly [body: string, names: RegExp])[] = [
  ['', /empty/],
  ['{', /JSON/],
  ['{"name":"N"', /JSON/],
  ['[object Object]', /JSON\.stringify/],
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
  ['{"name":"N","name":"M"}', /name is there twice/],
  ['{"wac":"DEMO","wac":"DEMO"}', /wac is there twice/],
  ['{"name":1}', /name/],
  ['{"name":["N"]}', /name/],
  ['{"description":true}', /description/],
  ['{"code":{}}', /code/],
  ['{"code":0}', /code/],
  ['{"parentInfrastructureID":"7"}', /parentInfrastructureID/],
  ['{"parentInfrastructureID":" "}', /parentInfrastructureID/],
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

t.test('an invalid body is 400 and the problem names the member, and nothing is sent', async (t) => {
  const { sandbox, put, post } = await siteCaller(t)
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

t.test('a body that is not UTF-8 is 400 and never changed', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.journal.clear()
  const headers = {
    'content-type': 'application/json',
    'x-csrf': '1',
    cookie: `session=${browser.cookies.get('session')!.value}`,
  }
  const send = (body: Buffer) => fetch(`${bff.publicUrl}/site/42`, { method: 'PUT', headers, body })
  const refused = await send(Buffer.from('{"name":"\xff"}', 'latin1'))
  t.equal(refused.status, 400)
  t.match(await refused.json(), { code: 'invalid_request', detail: /UTF-8/ })
  t.equal(sandbox.journal.entries().length, 0)
  t.equal((await send(Buffer.from('{"name":"ÿ"}'))).status, 200)
  t.match(sandbox.journal.entries()[0]?.body, '"name":"ÿ"')
})

t.test('an unknown name is cut in the problem', async (t) => {
  const { put } = await siteCaller(t)
  const answer = await put(JSON.stringify({ ['x'.repeat(10_000)]: 1 }))
  t.equal(answer.status, 400)
  t.ok(answer.body.length < 500)
})

t.test('a body is JSON in UTF-8 without compression, else 415', async (t) => {
  const { sandbox, send, sent } = await siteCaller(t)
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

t.test('a body over the limit is 413, even without a length', async (t) => {
  const { sandbox, send, put, sent } = await siteCaller(t, { BODY_LIMIT_BYTES: '300' })
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

t.test('an unknown parameter or an invalid callback is 400', async (t) => {
  const { sandbox, put, post } = await siteCaller(t)
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

t.test('an unknown parameter is named only if its name is safe to show, else by its position', async (t) => {
  const { put } = await siteCaller(t)
  for (const [query, named] of [
    ['a=1', 'The parameter a'],
    ['format=json&%3Cscript%3E=1', 'Parameter 2 of the query'],
    ['callback=a&format=json&=x', 'Parameter 3 of the query'],
  ] as const) {
    const { detail } = problemOf(await put('{}', `/site/42?${query}`))
    t.equal(detail, `${named} is not known here, or is repeated.`, query)
  }
})

t.test('a Content-Type that is mostly spaces is 415 without a slow search', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const begin = process.cpuUsage()
  for (let attempt = 0; attempt < 20; attempt += 1) {
    const headers = { 'content-type': `application/json${' '.repeat(12_000)}x` }
    const answer = await bff.browser().fetch('/site/1', { method: 'PUT', headers, body: '{}' })
    t.equal(answer.status, 415)
  }
  const { user } = process.cpuUsage(begin)
  // A search that goes back for each space takes twenty times a tenth of a second.
  t.ok(user < 1_000_000, `${user} microseconds`)
})
