import t from 'tap'
import { configOf, faultsOf, revealed, warningsOf } from './environment.ts'

const faultOf = (value: string): string => faultsOf({ UPSTREAM_HEADERS: value }).join('\n')
const json = (fields: object): string => faultOf(JSON.stringify(fields))

t.test('UPSTREAM_HEADERS is a JSON object of header fields, kept in their order', async (t) => {
  const config = configOf({ UPSTREAM_HEADERS: '{ "X-Api-Version": "2", "apikey": "two words,~!" }' })
  t.strictSame(revealed(config.upstream.headers), [
    { name: 'X-Api-Version', value: '2' },
    { name: 'apikey', value: 'two words,~!' },
  ])
  t.notMatch(JSON.stringify(config), /two words/, 'the values are secrets')
  t.strictSame(configOf({}).upstream.headers, [])
  const folder = t.testdir({ headers: '{"X-Key":"v"}\n' })
  t.strictSame(revealed(configOf({ UPSTREAM_HEADERS_FILE: `${folder}/headers` }).upstream.headers), [
    { name: 'X-Key', value: 'v' },
  ])
  t.strictSame(warningsOf({ UPSTREAM_HEADERS: '{"X-Key":"v"}' }), [])
})

t.test('UPSTREAM_HEADERS takes 16 fields, and a value of 1 to 4096 characters', async (t) => {
  const fields = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [`X-${at}`, 'v']))
  t.equal(json(fields(16)), '')
  t.equal(json(fields(17)), 'UPSTREAM_HEADERS must have at most 16 fields, but has 17')
  t.equal(json({ 'X-Long': 'v'.repeat(4096) }), '')
  const texts = ['', ' v', 'v ', 'a\tb', 'a\nb', 'a\r\nX: y', 'ä', '\u0000', 'v'.repeat(4097)]
  for (const value of [...texts, 1, null, {}])
    t.match(
      json({ 'X-Key': value }),
      /^UPSTREAM_HEADERS must give X-Key 1 to 4096 characters of visible ASCII/,
    )
})

t.test('a fault of UPSTREAM_HEADERS names the field and shows no value', async (t) => {
  for (const text of ['s3cret', '["s3cret"]', '"s3cret"', '{"X-Key":"s3cret"', 'null', 's3cret={}'])
    t.equal(faultOf(text), 'UPSTREAM_HEADERS must be a JSON object of header fields and their values')
  for (const name of ['', 'X Key', 'X:Key', 'Ä', 'X\n'])
    t.equal(json({ [name]: 's3cret' }), `UPSTREAM_HEADERS has no header name in ${JSON.stringify(name)}`)
  for (const text of ['{"X-Key":"s3cret","X-Key":"b"}', '{"X-Key":"s3cret","x-kEY":"b"}'])
    t.match(faultOf(text), /^UPSTREAM_HEADERS names x-key twice$/i)
  const all = json({ Cookie: 's3cret', 'X-Key': '', Host: 's3cret' })
  for (const says of [/must not set Cookie/, /must not set Host/, /X-Key/]) t.match(all, says)
  t.notMatch(all, /s3cret/)
})

t.test('UPSTREAM_HEADERS must not set a field that the server or the connection sets', async (t) => {
  for (const name of [
    'host HOST connection keep-alive te Te trailer transfer-encoding upgrade expect via authorization cookie',
    'user-agent x-request-id traceparent tracestate range forwarded x-http-method-override x-http-method',
    'x-method-override _method content-type Content-Length content-x accept Accept-Encoding acceptance if-match',
    'If-Anything proxy-authorization Proxy-X x-forwarded-for X-Forwarded-Anything',
  ].flatMap((names) => names.split(' ')))
    t.equal(json({ [name]: 's3cret' }), `UPSTREAM_HEADERS must not set ${name}`)
})

t.test('UPSTREAM_INVALID_TOKEN is a list of shapes, each a status, a pointer and a code', async (t) => {
  const shapesOf = (text: string) => configOf({ UPSTREAM_INVALID_TOKEN: text }).upstream.tokenShapes
  t.strictSame(shapesOf('400:/responseStatus/errorCode=TokenExpired, 403:/a/b/c/1=a.B_c-9'), [
    { status: 400, path: ['responseStatus', 'errorCode'], value: 'TokenExpired' },
    { status: 403, path: ['a', 'b', 'c', '1'], value: 'a.B_c-9' },
  ])
  t.strictSame(shapesOf('403:empty'), [{ status: 403, path: null }])
  t.strictSame(shapesOf(''), [])
  const says = [/^UPSTREAM_INVALID_TOKEN has a faulty entry: number \d /]
  for (const text of [
    ...['404:/a=b', '500:/a=b', '200:/a=b', '/a=b', '400:a=b', '400:/=b', '400:/a/=b', '400:/a', '400:/a='],
    ...['400:/a/b/c/d/e=f', '400:/a-b=c', '400:/a~1b=c', '400:/a=b c', '400:/a=b=c', '400:/a=b,'],
    ...['402:empty', '403:Empty', '403:empty=', '403:', '403'],
    ...['400: /a=b', `400:/a=${'v'.repeat(65)}`],
  ])
    t.match(faultsOf({ UPSTREAM_INVALID_TOKEN: text }), says, text)
})
