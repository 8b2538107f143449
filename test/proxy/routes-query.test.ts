import t from 'tap'
import { field, problemOf } from '../http/wire.ts'
import { type Header, proxyCaller } from './proxy-caller.ts'

const TYPES = { JSON: 'application/json', XML: 'application/xml', CSV: 'text/csv', JSV: 'text/jsv' }

const words = (text: string): string[] => text.split(' ')

/** What a browser sends for a navigation. */
const HTML = 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8'

t.test('the format of the query, in any case, is sent as format, Accept and Content-Type', async (t) => {
  const { get, sent } = await proxyCaller()
  for (const [query, format] of [
    ['format=JSON', 'JSON'],
    ['format=xMl', 'XML'],
    ['Format=csv', 'CSV'],
    ['FORMAT=JSV', 'JSV'],
    ['f%6frmat=%58ML', 'XML'],
    ['a=1&format=csv&b=2', 'CSV'],
  ] as const) {
    const answer = await get(`/flux/a?${query}`, ['Accept', 'image/png'], ['Content-Type', 'text/plain'])
    t.equal(answer.status, 200, query)
    t.match(sent(), { query: { format }, accept: TYPES[format], type: TYPES[format] }, query)
    t.match(field(answer, 'content-type'), TYPES[format], query)
  }
})

t.test('an unknown, empty or repeated format is 400', async (t) => {
  const { get, refused } = await proxyCaller()
  const unknown = 'format= format format=zip format=html format=json%20 format=json,xml format=jsonp'
  const repeated = 'format=JSON&format=JSON format=json&Format=xml format=json&form%61t=json'
  for (const query of `${unknown} ${repeated}`.split(' '))
    refused(t, await get(`/flux/a?${query}`), /format/, query)
})

/** What a request without a format in its query gets, by its Accept. */
const BY_ACCEPT = {
  JSON: `|*/*|application/json|APPLICATION/JSON|application/json; charset=utf-8|text/csv, */*|application/*|text/html
    |${HTML}|TEXT/HTML;q=0.1, text/csv`,
  XML: `application/xml|text/xml|text/csv;q=0.5, application/xml;q=0.6|application/json;q=0, */*|text/csv;q=0, text/*
    |text/csv;q=0.6,application/xml;q=0.6|application/json;q=0, application/xml;q=0, */*|text/*`,
  CSV: `text/csv|text/csv, */*;q=0.1|text/csv;q=1.000, text/jsv;q=0.999|text/*;q=0.5, text/csv
    |image/png, text/csv;q=0.001|text/csv,,`,
  JSV: 'text/jsv|application/jsv|text/csv ; q=0.4 , text/jsv ; q=0.5|text/csv;Q=0.4, text/jsv;q=0.5',
}

t.test('without a format in the query Accept decides, and after it Content-Type', async (t) => {
  const { get, sent } = await proxyCaller()
  const byAccept = Object.entries(BY_ACCEPT).flatMap(([format, accepts]) =>
    accepts.split(/\s*\|/).map((accept) => [accept, undefined, format as keyof typeof TYPES] as const),
  )
  for (const [accept, type, format] of [
    ...byAccept,
    [undefined, undefined, 'JSON'],
    [undefined, 'text/csv', 'CSV'],
    ['*/*', 'application/xml; charset=utf-8', 'XML'],
    [' */* ;q=0.5', 'TEXT/JSV', 'JSV'],
    ['', 'text/xml', 'XML'],
    [HTML, 'application/jsv', 'JSV'],
    ['*/*', 'application/json', 'JSON'],
    ['*/*', 'text/plain', 'JSON'],
    ['*/*', '', 'JSON'],
    ['application/json', 'text/csv', 'JSON'],
    ['text/csv', 'application/xml', 'CSV'],
    ['application/*', 'text/csv', 'JSON'],
  ] as const) {
    const headers: Header[] = []
    if (accept !== undefined) headers.push(['Accept', accept])
    if (type !== undefined) headers.push(['Content-Type', type])
    const what = `Accept: ${accept}, Content-Type: ${type}`
    t.equal((await get('/flux/a', ...headers)).status, 200, what)
    t.match(sent(), { query: { format }, accept: TYPES[format], type: TYPES[format] }, what)
  }
  await get('/flux/a?format=XML', ['Content-Type', 'text/csv'])
  t.match(sent(), { query: { format: 'XML' } }, 'the query comes first')
})

t.test('an Accept header without any of the formats is 406', async (t) => {
  const { sandbox, get } = await proxyCaller()
  for (const accept of [
    ...['image/png', 'image/*', 'application/pdf, image/png;q=0.5', '*/*;q=0', 'application/json;q=0'],
    ...['application/json;q=0, text/csv;q=0.0', 'application/json;q=2', 'application/json;q=-1'],
    ...['application/json;q=x', 'application/jsonx', 'application', 'application/xhtml+xml'],
  ])
    t.match(problemOf(await get('/flux/a', ['Accept', accept])), { code: 'not_acceptable' }, accept)
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('a parameter that carries a token or asks for a script is 400, in any spelling', async (t) => {
  const { get, refused } = await proxyCaller()
  const hex = (char: string): string => `%${char.charCodeAt(0).toString(16)}`
  for (const name of ['access_token', 'oauth_token', 'callback']) {
    for (const written of [
      name,
      name.toUpperCase(),
      `${hex(name[0]!)}${name.slice(1)}`,
      name.replace('_', '%5F'),
      [...name].map(hex).join(''),
    ]) {
      for (const query of [`${written}=x`, written, `a=1&${written}=x`, `${written}=x&${written}=y`])
        refused(t, await get(`/flux/a?${query}`), new RegExp(name), query)
    }
  }
})

t.test('a parameter that would change method or path is 400, however it is written', async (t) => {
  const { get, sent, refused } = await proxyCaller()
  for (const [query, named] of [
    ['X-Http-Method-Override=DELETE', 'x-http-method-override'],
    ['X-HTTP-Method=PUT', 'x-http-method'],
    ['X-Method-Override=PUT', 'x-method-override'],
    ['_method=PUT', '_method'],
    ['a=1&%5Fmethod=PUT', '_method'],
    ['WAC=ACME', 'wac'],
    ['wac=', 'wac'],
    ['w%61c=ACME', 'wac'],
    ['FluxId=secret', 'fluxid'],
    ['+wac=ACME', 'wac'],
    // Names are compared as a platform might read them.
    ['w_ac=ACME', 'w_ac'],
    ['wa-c=ACME', 'wa-c'],
    ['wac+=ACME', 'wac'],
    ['flux_id=other', 'flux_id'],
    ['Flux-ID=other', 'flux-id'],
    ['access_token%00=1', 'control character'],
    ['wac%0A=ACME', 'control character'],
  ] as const)
    refused(t, await get(`/flux/a?${query}`), new RegExp(named), query)
  for (const name of words(
    'access-token accesstoken oauthToken TOKEN bearer apikey api_key Api-Key authsecret ss-id',
  ))
    refused(t, await get(`/flux/a?${name}=x`), /is not allowed/, name)
  for (const name of words(
    'ssid ss_pid SS-TOK call_back +callback callback+ auth-secret +_method X-HTTP-METHOD+',
  ))
    refused(t, await get(`/flux/a?${name}=x`), /is not allowed/, name)
  for (const query of ['for-mat=XML&format=CSV', 'f_ormat=zip'])
    refused(t, await get(`/flux/a?${query}`), /format/, query)
  await get('/flux/a?for_mat=XML')
  t.equal(sent().url, '/DEMO/flux/a?format=XML', 'another spelling of format is format')
  for (const query of ['wac=DEMO', 'WAC=DEMO', 'fluxId=a', 'flux_id=a', '+FLUXID=a'])
    refused(t, await get(`/flux/DEMO/a?${query}`), /is not allowed/, `${query}: in agreement with the path`)
})

t.test('other parameters are sent unchanged and in their order', async (t) => {
  const { get, sent } = await proxyCaller()
  for (const [query, expected] of [
    ['a=1&b=2&a=3', 'format=JSON&a=1&b=2&a=3'],
    ['q=%C3%A4+b%20c&x=%2F%3F%26%3D', 'format=JSON&q=%C3%A4+b%20c&x=%2F%3F%26%3D'],
    ['a=1&format=xml&b=2', 'format=XML&a=1&b=2'],
    ['flag&empty=&=x', 'format=JSON&flag&empty=&=x'],
    ['a=b=c&d=//evil.test/..', 'format=JSON&a=b=c&d=//evil.test/..'],
    ['a[]=1&a[]=2&b.c=3&$filter=x', 'format=JSON&a[]=1&a[]=2&b.c=3&$filter=x'],
    ['a=1;access_token=2', 'format=JSON&a=1%3Baccess_token=2'],
    ['my_access_token=1&callbacks=2&formats=3', 'format=JSON&my_access_token=1&callbacks=2&formats=3'],
    ['&&a=1&&', 'format=JSON&a=1'],
    ['', 'format=JSON'],
    ['a=?b', 'format=JSON&a=?b'],
    ["a='b'", "format=JSON&a='b'"],
    ['method=kriging', 'format=JSON&method=kriging'],
  ] as const) {
    await get(`/flux/a?${query}`)
    t.equal(sent().url, `/DEMO/flux/a?${expected}`, query)
  }
})

t.test('an object as a value is 400, since it would read the wrong data', async (t) => {
  const { get, refused } = await proxyCaller()
  for (const value of ['[object Object]', '%5Bobject%20Object%5D', '[object+Object],[object+Object]'])
    refused(t, await get(`/flux/a?filter=${value.replace(' ', '%20')}`), /filter is \[object Object\]/, value)
  t.equal((await get('/flux/a?filter=an+[object+Object]')).status, 200)
})

t.test(
  'a generated client that wraps the free parameters gets 400, since it would read the wrong data',
  async (t) => {
    const { get, refused } = await proxyCaller()
    for (const query of ['parameters[values]=3', 'parameters%5Bvalues%5D=3'])
      refused(t, await get(`/flux/a?${query}`), /parameters\[values\] is not sent like this/, query)
    t.equal((await get('/flux/a?parameters=values&filter[a]=1')).status, 200)
  },
)

t.test('what makes ServiceStack respond with the headers of the request is 400', async (t) => {
  const { get, refused } = await proxyCaller()
  for (const query of ['debug=requestinfo', 'a=1&DEBUG=%20RequestInfo'])
    refused(t, await get(`/flux/a?${query}`), /is not allowed/, query)
  t.equal((await get('/flux/a?debug=1&info=requestinfo')).status, 200)
})

t.test('a query of more than 100 parameters is 400', async (t) => {
  const { get, sent, refused } = await proxyCaller()
  t.equal((await get(`/flux/a?${'a&'.repeat(99)}b`)).status, 200)
  sent()
  refused(t, await get(`/flux/a?${'a&'.repeat(100)}b`), /more than 100 parameters/, '101')
})

t.test('a malformed query is 400 and names the parameter', async (t) => {
  const { get, refused } = await proxyCaller()
  for (const [query, named] of [
    ['a=%', /^The parameter a /],
    ['a.b-2=%zz', /^The parameter a\.b-2 /],
    ['%=1', /^Parameter 1 of the query /],
    ['x=1&&%zz=1', /^Parameter 2 of the query /],
    ['a=%c3%28', /^The parameter a /],
    // Node's parser refuses it.
    ['é=1', /^This is not a well-formed HTTP request/],
    ['x=1&a%0A=1', /^Parameter 2 of the query /],
    [`${'a'.repeat(65)}=%`, /^Parameter 1 of the query /],
  ] as const)
    refused(t, await get(`/flux/a?${query}`), named, query)
})
