import t from 'tap'
import { faultsOf } from '../config/environment.ts'
import { field, problemOf } from '../http/wire.ts'
import { siteCaller } from './site-caller.ts'

t.test('a PUT becomes the documented one, with the members that the path names', async (t) => {
  const { put, sent } = await siteCaller(t)
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
  const { post, sent } = await siteCaller(t)
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

t.test('an account code may have dots and tildes, in the path, the body and the configuration', async (t) => {
  const { put, post, sent } = await siteCaller(t, { WAC: 'my.account~2', WAC_ALLOWED: 'my.account~2,DEMO' })
  await put('{"name":"N"}')
  t.match(sent(), { url: '/my.account~2/Infrastructure/Site/42', body: { wac: 'my.account~2' } })
  await put('{"name":"N"}', '/site/my.account~2/42.json')
  t.match(sent(), { url: '/my.account~2/Infrastructure/Site/42?format=json' })
  await post('{"siteID":42,"wac":"my.account~2"}')
  t.match(sent(), { body: { wac: 'my.account~2' } })
  for (const wac of ['.', '..']) {
    t.equal((await post(`{"siteID":42,"wac":"${wac}"}`)).status, 400, wac)
    t.match(faultsOf({ WAC: wac }), [/^WAC must be an account code/], wac)
    t.match(faultsOf({ WAC_ALLOWED: wac }), [/^WAC_ALLOWED has a faulty entry/], wac)
  }
})

t.test('a parent is sent as a number, null or an empty text, and an absent one is not sent', async (t) => {
  const { put, sent } = await siteCaller(t)
  for (const [given, expected] of [
    ['{}', undefined],
    ['{"parentInfrastructureID":null}', null],
    ['{"parentInfrastructureID":""}', ''],
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

t.test('texts are sent to the last character', async (t) => {
  const { put, sent } = await siteCaller(t)
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

t.test('name, description and code may be null', async (t) => {
  const { put, sent } = await siteCaller(t)
  t.equal((await put('{"name":null,"description":null,"code":null}')).status, 200)
  t.match(sent(), { body: { name: null, description: null, code: null } })
})

t.test('the body may repeat members of the path', async (t) => {
  const { put, sent } = await siteCaller(t)
  t.equal((await put('{"siteID":42,"wac":"ACME","wType":"UpdateSite"}', '/site/ACME/42')).status, 200)
  t.strictSame((sent() as { body: unknown }).body, { siteID: 42, wac: 'ACME', wType: 'UpdateSite' })
  t.equal((await put('{"siteID":42,"wac":"DEMO"}')).status, 200, 'or with the default')
})

t.test('a suffix or a parameter selects JSON, and a callback selects a script', async (t) => {
  const { put, post, sent } = await siteCaller(t)
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

t.test('a script is not relayed without a callback', async (t) => {
  const { sandbox, put } = await siteCaller(t)
  sandbox.faults.set({ resourceHeaders: { 'content-type': 'text/javascript' } })
  t.equal((await put('{}')).status, 502)
  t.equal((await put('{}', '/site/42?callback=cb')).status, 200)
})

t.test('an update is not repeated when its response is lost', async (t) => {
  const { sandbox, put } = await siteCaller(t)
  sandbox.faults.set({ resource: { mode: 'drop', point: 'after' } })
  t.equal((await put('{"name":"N"}')).status, 502)
  t.equal(sandbox.journal.entries().length, 1)
})
