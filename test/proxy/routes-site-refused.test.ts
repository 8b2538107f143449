import t from 'tap'
import { problemOf } from '../http/wire.ts'
import { JSON_TYPE, proxyCaller } from './proxy-caller.ts'

const member = (name: string, ...values: string[]) =>
  values.map((value) => [`{"${name}":${value}}`, new RegExp(`\\b${name}\\b`)] as const)

const BAD_BODIES: readonly (readonly [body: string, names: RegExp])[] = [
  ['', /empty/],
  ['[object Object]', /JSON\.stringify/],
  ...['{', '{"name":"N"', "{'name':'N'}", '{"name":"N",}', '{"name":"N"}x', 'undefined'].map(
    (body) => [body, /JSON/] as const,
  ),
  ...member('siteID', '042', 'NaN').map(([body]) => [body, /JSON/] as const),
  ...['null', '[]', '[{"name":"N"}]', '"name"', '42', 'true'].map((body) => [body, /object/] as const),
  ['{"name":"N","name":"M"}', /name is there twice/],
  ['{"wac":"DEMO","wac":"DEMO"}', /wac is there twice/],
  ...member('name', '1', '["N"]'),
  ...member('description', 'true'),
  ...member('code', '{}', '0'),
  ...member('parentInfrastructureID', '"7"', '" "', '1.5', '1e400', 'false'),
  ...member('parentInfrastructureID', '9007199254740992', '9007199254740993', '-9007199254740993'),
  ...member('siteID', '43', '"42"', 'null', '42.5', '-42', '9007199254740993'),
  ...member('wac', '"ACME"', '"demo"', '""', 'null', '"../x"', '"DEMO\\n"'),
  ...member('wType', '"Site"', '"updatesite"', 'null'),
  ...['Name', 'SiteID', 'id', 'picture', 'access_token', 'constructor', 'toString'].flatMap((name) =>
    member(name, '"x"'),
  ),
  ['{"":1}', /member/],
  ['{"__proto__":{"name":"N"}}', /./],
  ['{"constructor":{"prototype":{"name":"N"}}}', /./],
  ['{"name":"N","__proto__":null}', /./],
]

const BAD_POSTS: readonly (readonly [body: string, names: RegExp])[] = [
  ...['{}', '{"name":"N"}', '{"wac":"DEMO"}'].map((body) => [body, /siteID/] as const),
  ...member('siteID', '"42"', '9007199254740993', '-1'),
  ['{"siteID":1,"wac":"a/b"}', /wac/],
  ['{"siteID":1,"x":1}', /\bx\b/],
]

/** A valid UpdateSite, as PUT and as POST. */
const CALLS = [
  ['PUT', '/site/42', '{}'],
  ['POST', '/site', '{"siteID":42}'],
] as const

t.test('an invalid body is 400 and the problem names the member, and nothing is sent', async (t) => {
  const { put, post, refused } = await proxyCaller()
  for (const [body, names] of BAD_BODIES) refused(t, await put(body), names, `PUT ${body}`)
  for (const [body, names] of BAD_POSTS) refused(t, await post(body), names, `POST ${body}`)
  refused(t, await put('{"name":1}'), /must be string or null/, 'its types')
  for (const value of ['"7"', '1.5', 'true'])
    refused(t, await put(`{"parentInfrastructureID":${value}}`), /must be integer, null or empty/, value)
  const { status, body } = await put(JSON.stringify({ ['x'.repeat(10_000)]: 1 }))
  t.ok(status === 400 && body.length < 500, 'an unknown name is cut')
})

t.test('a body that is not UTF-8 is 400 and never changed', async (t) => {
  const { sandbox, bff, cookie } = await proxyCaller()
  const headers = [JSON_TYPE, cookie, ['X-CSRF', '1']] as [string, string][]
  const send = (body: Buffer) => fetch(`${bff.publicUrl}/site/42`, { method: 'PUT', headers, body })
  const refused = await send(Buffer.from('{"name":"\xff"}', 'latin1'))
  t.match(await refused.json(), { status: 400, code: 'invalid_request', detail: /UTF-8/ })
  t.equal(sandbox.journal.entries().length, 0)
  t.equal((await send(Buffer.from('{"name":"ÿ"}'))).status, 200)
  t.match(sandbox.journal.entries()[0]?.body, '"name":"ÿ"')
})

t.test('a body is JSON in UTF-8 without compression, else 415', async (t) => {
  const { sandbox, send } = await proxyCaller()
  const json = 'application/json'
  const ofLength = (length: number) => `${json};${'charset=utf-8'.padStart(length - json.length - 1)}`
  for (const type of [
    ...[json, 'Application/JSON', `${json}; charset=utf-8`, `${json};charset=UTF-8`],
    ...[`${json}; charset="utf-8"`, `${json} ;charset=utf-8`, `${json};`, ofLength(100)],
  ]) {
    const site = { method: 'PUT', target: '/site/42', body: '{}', headers: [['Content-Type', type]] as const }
    t.equal((await send(site)).status, 200, type)
  }
  sandbox.journal.clear()
  const types = [
    ...['', 'text/plain', 'text/plain;charset=UTF-8', 'application/x-www-form-urlencoded', 'text/json'],
    ...['multipart/form-data; boundary=x', 'application/jsonx', `${json} garbage`, `${json}; charset=utf-16`],
    ...[`${json}; charset=latin1`, 'application/ld+json', 'application/problem+json', `text/plain, ${json}`],
    // So long that no pattern searches it.
    ofLength(101),
  ]
  const codings = ['gzip', 'br', 'identity, gzip']
  for (const headers of [
    [],
    ...types.map((type) => [['Content-Type', type]] as const),
    ...codings.map((coding) => [JSON_TYPE, ['Content-Encoding', coding]] as const),
  ]) {
    for (const [method, target, body] of CALLS) {
      const answer = await send({ method, target, body, headers })
      const what = `${method} ${JSON.stringify(headers)}`
      t.match(problemOf(answer), { status: 415, code: 'unsupported_media_type' }, what)
    }
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('a body over the limit is 413, even without a length', async (t) => {
  const { sandbox, send, put, sent } = await proxyCaller({ BODY_LIMIT_BYTES: '300' })
  const fits = JSON.stringify({ name: 'x'.repeat(300 - '{"name":""}'.length) })
  t.equal((await put(fits)).status, 200)
  sent()
  const chunked = '{"name":"'.padEnd(5_000, 'x')
  const headers = [JSON_TYPE, ['Transfer-Encoding', 'chunked']] as const
  for (const answer of [
    await put(`${fits} `),
    await put('x'.repeat(5_000)),
    await send({ method: 'POST', target: '/site', body: `{"siteID":1,"name":"${'ä'.repeat(150)}"}` }),
    await send({ method: 'PUT', target: '/site/42', headers, chunked }),
  ])
    t.match(problemOf(answer), { status: 413, code: 'payload_too_large' })
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('an unknown parameter or an invalid callback is 400', async (t) => {
  const { send, refused } = await proxyCaller()
  const callbacks = [
    ...['', '1a', 'a-b', 'a.', '.a', 'a..b', 'a()', 'a[0]', 'alert(1)//', 'a%0a', 'a%20b', '%3Cscript%3E'],
    ...['ä', '%C3%A4', 'c'.repeat(65), 'a;b', 'a&callback=b'],
  ]
  for (const query of [
    ...callbacks.map((value) => `callback=${value}`),
    ...['a=1', 'access_token=x', 'oauth_token=x', 'format=xml', 'format=', 'format=json&format=json'],
    ...['Format=json', 'Callback=cb', 'callback', 'siteID=42', 'wac=ACME', '=x', '%', '%3Cscript%3E=1'],
  ]) {
    for (const [method, target, body] of CALLS) {
      const answer = await send({ method, target: `${target}?${query}`, body })
      refused(t, answer, /[Pp]arameter|HTTP/, query)
      t.notMatch(answer.body, /<script/, query)
    }
  }
})
