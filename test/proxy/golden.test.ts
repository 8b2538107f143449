import t from 'tap'
import { field } from '../http/wire.ts'
import { proxyCaller } from './proxy-caller.ts'

/** What each call of a page becomes, to the byte: request line and body. */
const CALLS: readonly (readonly [call: readonly [string, string?], becomes: readonly [string, string?]])[] = [
  [['GET /flux/a'], ['GET /DEMO/flux/a?format=JSON']],
  [['GET /flux/ACME/a.b~c?values=3&q=%C3%A4+b'], ['GET /ACME/flux/a.b~c?format=JSON&values=3&q=%C3%A4+b']],
  [['GET /flux/a?format=csv'], ['GET /DEMO/flux/a?format=CSV']],
  [['HEAD /flux/a'], ['HEAD /DEMO/flux/a?format=JSON']],
  [
    ['PUT /site/42', '{ "name": "ä", "code": null }'],
    [
      'PUT /DEMO/Infrastructure/Site/42',
      '{"name":"ä","code":null,"wType":"UpdateSite","siteID":42,"wac":"DEMO"}',
    ],
  ],
  [
    [
      'PUT /site/ACME/42.json?callback=a.b',
      '{"wac":"ACME","name":"N","siteID":42,"parentInfrastructureID":1.0}',
    ],
    [
      'PUT /ACME/Infrastructure/Site/42?format=json&callback=a.b',
      '{"wac":"ACME","name":"N","siteID":42,"parentInfrastructureID":1,"wType":"UpdateSite"}',
    ],
  ],
  [
    ['POST /site?format=JSON', '{"siteID":42,"parentInfrastructureID":""}'],
    [
      'POST /json/reply/UpdateSite?format=json',
      '{"siteID":42,"parentInfrastructureID":"","wType":"UpdateSite","wac":"DEMO"}',
    ],
  ],
  [
    ['POST /site.json', '{"wac":"ACME","siteID":42,"wType":"UpdateSite"}'],
    ['POST /json/reply/UpdateSite?format=json', '{"wac":"ACME","siteID":42,"wType":"UpdateSite"}'],
  ],
]

t.test('each call of GetFlux and UpdateSite becomes the same bytes at the platform', async (t) => {
  const { sandbox, send } = await proxyCaller()
  for (const [[call, given], [becomes, expected = '']] of CALLS) {
    const [method = '', target = ''] = call.split(' ')
    sandbox.journal.clear()
    const answer = await send(
      given === undefined ? { method, target, headers: [] } : { method, target, body: given },
    )
    const [entry, ...more] = sandbox.journal.entries()
    t.strictSame(more, [], call)
    t.strictSame([`${entry?.method} ${entry?.url}`, entry?.body], [becomes, expected], call)
    const { accept, 'content-type': type, 'user-agent': agent, 'x-request-id': id } = entry!.headers
    const format = call.endsWith('csv') ? 'text/csv' : 'application/json'
    t.strictSame([accept, type], [format, format], call)
    t.match(agent, /^token-handler-bff\/\d+\.\d+\.\d+$/)
    t.match(id, /^[0-9a-f]{12}-\w+$/)
    t.strictSame([answer.status, field(answer, 'x-request-id')], [200, id], 'the response has the same id')
    const media = call.includes('callback') ? /^text\/javascript/ : new RegExp(`^${format}`)
    t.match(field(answer, 'content-type'), media, call)
  }
})

t.test('UPSTREAM_HEADERS go to the resource server, and never to the authorization server', async (t) => {
  const { sandbox, bff, browser } = await proxyCaller({ UPSTREAM_HEADERS: '{"X-Api-Key":"s3cret-key"}' })
  sandbox.expireAccessTokens()
  const answer = await browser.fetch('/flux/a', { headers: { 'x-api-key': 'of the browser' } })
  t.equal(answer.status, 200)
  t.strictSame(
    sandbox.journal.entries().map(({ endpoint, headers }) => [endpoint, headers['x-api-key']]),
    [
      ['resource', 's3cret-key'],
      ['token', undefined],
      ['resource', 's3cret-key'],
    ],
  )
  t.notMatch(bff.log(), /s3cret-key/)
  t.notMatch(JSON.stringify(answer.headers) + answer.text, /s3cret-key/)
})
