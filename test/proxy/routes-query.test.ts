import t, { type Test } from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { ask, field, OWN, portOf, problemOf } from '../http/wire.ts'

type Header = readonly [name: string, value: string]

async function ready(t: Test) {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.journal.clear()
  const cookie = ['Cookie', `session=${browser.cookies.get('session')!.value}`] as const
  return {
    sandbox,
    get: (target: string, ...headers: Header[]) =>
      ask(portOf(bff), { target, headers: [OWN, cookie, ...headers] }),
  }
}

const TYPES: Record<string, string> = {
  JSON: 'application/json',
  XML: 'application/xml',
  CSV: 'text/csv',
  JSV: 'text/jsv',
}

t.test('the format of the query, in any case, is sent as format, Accept and Content-Type', async (t) => {
  const { sandbox, get } = await ready(t)
  for (const [query, format] of [
    ['', 'JSON'],
    ['?format=JSON', 'JSON'],
    ['?format=json', 'JSON'],
    ['?format=XML', 'XML'],
    ['?format=xMl', 'XML'],
    ['?Format=csv', 'CSV'],
    ['?FORMAT=JSV', 'JSV'],
    ['?f%6frmat=%58ML', 'XML'],
    ['?a=1&format=csv&b=2', 'CSV'],
  ] as const) {
    sandbox.journal.clear()
    const answer = await get(`/flux/a${query}`, ['Accept', 'image/png'], ['Content-Type', 'text/plain'])
    if (query === '') {
      t.equal(answer.status, 406, 'without one in the query the Accept counts')
      continue
    }
    t.equal(answer.status, 200, query)
    const [entry] = sandbox.journal.entries()
    t.equal(entry?.query.format, format, query)
    t.equal(entry?.headers.accept, TYPES[format], query)
    t.equal(entry?.headers['content-type'], TYPES[format], query)
    t.match(field(answer, 'content-type'), TYPES[format]!, query)
  }
})

t.test('an unknown, empty or repeated format is 400', async (t) => {
  const { sandbox, get } = await ready(t)
  for (const query of [
    'format=',
    'format',
    'format=zip',
    'format=html',
    'format=json%20',
    'format=json,xml',
    'format=JSON&format=JSON',
    'format=json&Format=xml',
    'format=json&form%61t=json',
    'format=jsonp',
  ]) {
    const answer = await get(`/flux/a?${query}`)
    t.equal(answer.status, 400, query)
    t.match(problemOf(answer), { code: 'invalid_request', detail: /format/ }, query)
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('without a format in the query the Accept header decides', async (t) => {
  const { sandbox, get } = await ready(t)
  const HTML = 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8'
  for (const [accept, format] of [
    [undefined, 'JSON'],
    ['', 'JSON'],
    ['*/*', 'JSON'],
    ['application/json', 'JSON'],
    ['APPLICATION/JSON', 'JSON'],
    ['application/json; charset=utf-8', 'JSON'],
    ['application/xml', 'XML'],
    ['text/xml', 'XML'],
    ['text/csv', 'CSV'],
    ['text/jsv', 'JSV'],
    ['application/jsv', 'JSV'],
    ['text/csv, */*', 'JSON'],
    ['text/csv, */*;q=0.1', 'CSV'],
    ['text/csv;q=0.5, application/xml;q=0.6', 'XML'],
    ['text/csv;q=0.6,application/xml;q=0.6', 'XML'],
    ['text/csv;q=1.000, text/jsv;q=0.999', 'CSV'],
    ['text/csv ; q=0.4 , text/jsv ; q=0.5', 'JSV'],
    ['text/csv;Q=0.4, text/jsv;q=0.5', 'JSV'],
    ['application/json;q=0, */*', 'XML'],
    ['application/json;q=0, application/xml;q=0, */*', 'XML'],
    ['application/*', 'JSON'],
    ['text/*', 'XML'],
    ['text/*;q=0.5, text/csv', 'CSV'],
    ['text/csv;q=0, text/*', 'XML'],
    ['image/png, text/csv;q=0.001', 'CSV'],
    [HTML, 'JSON'],
    ['text/html', 'JSON'],
    ['TEXT/HTML;q=0.1, text/csv', 'JSON'],
    ['text/csv,,', 'CSV'],
  ] as const) {
    sandbox.journal.clear()
    const answer = await get('/flux/a', ...(accept === undefined ? [] : [['Accept', accept] as const]))
    t.equal(answer.status, 200, `Accept: ${accept}`)
    const [entry] = sandbox.journal.entries()
    t.equal(entry?.query.format, format, `Accept: ${accept}`)
    t.equal(entry?.headers.accept, TYPES[format], `Accept: ${accept}`)
  }
})

t.test('without a choice in the query or in Accept, Content-Type names the format', async (t) => {
  const { sandbox, get } = await ready(t)
  const HTML = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'
  for (const [accept, type, format] of [
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
    sandbox.journal.clear()
    const headers = [
      ...(accept === undefined ? [] : [['Accept', accept] as const]),
      ['Content-Type', type] as const,
    ]
    const what = `Accept: ${accept}, Content-Type: ${type}`
    t.equal((await get('/flux/a', ...headers)).status, 200, what)
    const [entry] = sandbox.journal.entries()
    t.equal(entry?.query.format, format, what)
    t.equal(entry?.headers['content-type'], TYPES[format], what)
  }
  sandbox.journal.clear()
  await get('/flux/a?format=XML', ['Content-Type', 'text/csv'])
  t.equal(sandbox.journal.entries()[0]?.query.format, 'XML', 'the query comes first')
})

t.test('an Accept header without any of the formats is 406', async (t) => {
  const { sandbox, get } = await ready(t)
  for (const accept of [
    'image/png',
    'image/*',
    'application/pdf, image/png;q=0.5',
    '*/*;q=0',
    'application/json;q=0',
    'application/json;q=0, text/csv;q=0.0',
    'application/json;q=2',
    'application/json;q=-1',
    'application/json;q=x',
    'application/jsonx',
    'application',
    'application/xhtml+xml',
  ]) {
    const answer = await get('/flux/a', ['Accept', accept])
    t.equal(answer.status, 406, accept)
    t.match(problemOf(answer), { code: 'not_acceptable' }, accept)
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test(
  'a parameter that would carry a token or ask for a script is 400, however it is written',
  async (t) => {
    const { sandbox, get } = await ready(t)
    for (const name of ['access_token', 'oauth_token', 'callback']) {
      for (const written of [
        name,
        name.toUpperCase(),
        name[0]!.toUpperCase() + name.slice(1),
        `%${name.charCodeAt(0).toString(16)}${name.slice(1)}`,
        name.replace('_', '%5F'),
        [...name].map((char) => `%${char.charCodeAt(0).toString(16)}`).join(''),
      ]) {
        for (const query of [
          `${written}=x`,
          `${written}=`,
          written,
          `a=1&${written}=x`,
          `${written}=x&${written}=y`,
        ]) {
          const answer = await get(`/flux/a?${query}`)
          t.equal(answer.status, 400, query)
          t.match(problemOf(answer), { code: 'invalid_request', detail: new RegExp(name) }, query)
        }
      }
    }
    t.equal(sandbox.journal.entries().length, 0)
  },
)

t.test('a parameter that would change method or path is 400, however it is written', async (t) => {
  const { sandbox, get } = await ready(t)
  for (const [query, named] of [
    ['X-Http-Method-Override=DELETE', 'x-http-method-override'],
    ['x-http-method-override=GET', 'x-http-method-override'],
    ['X-HTTP-Method=PUT', 'x-http-method'],
    ['X-Method-Override=PUT', 'x-method-override'],
    ['_method=PUT', '_method'],
    ['a=1&%5Fmethod=PUT', '_method'],
    ['WAC=ACME', 'wac'],
    ['wac=', 'wac'],
    ['w%61c=ACME', 'wac'],
    ['FluxId=secret', 'fluxid'],
    ['FLUXID=b', 'fluxid'],
    ['+wac=ACME', 'wac'],
    ['access_token%00=1', 'control character'],
    ['wac%0A=ACME', 'control character'],
  ] as const) {
    const answer = await get(`/flux/a?${query}`)
    t.equal(answer.status, 400, query)
    t.match(problemOf(answer), { code: 'invalid_request', detail: new RegExp(named) }, query)
  }
  t.equal(sandbox.journal.entries().length, 0)
  await get('/flux/a?WAC=DEMO&fluxId=a')
  t.equal(sandbox.journal.entries()[0]?.url, '/DEMO/flux/a?format=JSON&WAC=DEMO&fluxId=a', 'in agreement')
})

t.test('other parameters are sent unchanged and in their order', async (t) => {
  const { sandbox, get } = await ready(t)
  for (const [query, sent] of [
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
  ] as const) {
    sandbox.journal.clear()
    await get(`/flux/a?${query}`)
    t.equal(sandbox.journal.entries()[0]?.url, `/DEMO/flux/a?${sent}`, query)
  }
})

t.test('a malformed query is 400 and names the parameter', async (t) => {
  const { sandbox, get } = await ready(t)
  for (const [query, named] of [
    ['a=%', 'The parameter a '],
    ['x=1&a=%z', 'The parameter a '],
    ['a.b-2=%zz', 'The parameter a.b-2 '],
    ['%=1', 'Parameter 1 of the query '],
    ['x=1&&%zz=1', 'Parameter 2 of the query '],
    ['a=%c3%28', 'The parameter a '],
    ['a=%ff', 'The parameter a '],
    // Node's parser refuses it.
    ['é=1', 'This is not a well-formed HTTP request'],
    ['a=%E9', 'The parameter a '],
    ['x=1&a%0A=1', 'Parameter 2 of the query '],
    [`${'a'.repeat(65)}=%`, 'Parameter 1 of the query '],
  ] as const) {
    const answer = await get(`/flux/a?${query}`)
    t.equal(answer.status, 400, query)
    const { code, detail } = problemOf(answer)
    t.equal(code, 'invalid_request', query)
    t.ok(String(detail).startsWith(named), `${query}: ${detail}`)
  }
  t.equal(sandbox.journal.entries().length, 0)
})
