import t from 'tap'
import { faultsOf } from '../config/environment.ts'
import { field, problemOf } from '../http/wire.ts'
import { proxyCaller } from './proxy-caller.ts'

t.test('an account code may have dots and tildes, in the path, the body and the configuration', async (t) => {
  const { put, post, sent } = await proxyCaller({ WAC: 'my.account~2', WAC_ALLOWED: 'my.account~2,DEMO' })
  await put('{"name":"N"}')
  t.match(sent(), { url: '/my.account~2/Infrastructure/Site/42', body: /"wac":"my\.account~2"/ })
  await post('{"siteID":42,"wac":"my.account~2"}')
  t.match(sent().body, /"wac":"my\.account~2"/)
  for (const wac of ['.', '..'])
    t.match(
      faultsOf({ WAC: wac, WAC_ALLOWED: wac }),
      [/^WAC must be an account/, /^WAC_ALLOWED has a faulty/],
      wac,
    )
})

t.test('each member is sent as it was given, and an absent one is not sent', async (t) => {
  const { put, sent } = await proxyCaller()
  const parent = (text: string) => `{"parentInfrastructureID":${text}}`
  for (const [given, expected] of [
    ['{}', {}],
    [parent('null'), { parentInfrastructureID: null }],
    [parent('""'), { parentInfrastructureID: '' }],
    [parent('0'), { parentInfrastructureID: 0 }],
    [parent('9007199254740991'), { parentInfrastructureID: 9007199254740991 }],
    [parent('1.0'), { parentInfrastructureID: 1 }],
    [parent('1e3'), { parentInfrastructureID: 1000 }],
    ['{"name":null,"description":null,"code":null}', { name: null, description: null, code: null }],
    ['{"siteID":42,"wac":"DEMO","wType":"UpdateSite"}', {}],
    ['\ufeff{"name":"N"}', { name: 'N' }],
    ...['', ' ', 'ä€😀', '\u2028\u0000"\\/', '</script>', '9007199254740993', 'x'.repeat(60_000)].map(
      (name) => [JSON.stringify({ name }), { name }] as const,
    ),
  ] as const) {
    t.equal((await put(given)).status, 200, encodeURIComponent(given.slice(0, 60)))
    t.same(JSON.parse(sent().body), { ...expected, wType: 'UpdateSite', siteID: 42, wac: 'DEMO' })
  }
})

t.test('a suffix or a parameter selects JSON, and a callback selects a script', async (t) => {
  const { put, post, sent } = await proxyCaller()
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

t.test('a token in the query has the format beside it, in UpdateSite too', async (t) => {
  const { put, post, sent } = await proxyCaller({ UPSTREAM_TOKEN_IN: 'query' })
  const token = 'access_token=[^&]+$'
  for (const target of ['/site/42', '/site/42.json', '/site/42?format=json']) {
    t.equal((await put('{"name":"N"}', target)).status, 200, target)
    t.match(sent().url, new RegExp(`^/DEMO/Infrastructure/Site/42\\?format=json&${token}`), target)
  }
  t.equal((await post('{"siteID":42}', '/site?callback=cb')).status, 200)
  t.match(sent().url, new RegExp(`^/json/reply/UpdateSite\\?format=json&callback=cb&${token}`))
})

t.test('a script is relayed with a callback alone, and a page never', async (t) => {
  const { sandbox, put } = await proxyCaller()
  for (const [type, query, status] of [
    ['text/javascript', '', 502],
    ['text/javascript', '?callback=cb', 200],
    ['text/html', '?callback=cb', 502],
  ] as const) {
    sandbox.faults.set({ resourceHeaders: { 'content-type': type } })
    t.equal((await put('{}', `/site/42${query}`)).status, status, `${type} ${query}`)
  }
})
