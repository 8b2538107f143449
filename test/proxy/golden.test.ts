import t from 'tap'
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
  const { send, sent } = await proxyCaller()
  for (const [[call, given], [becomes, expected = '']] of CALLS) {
    const [method = '', target = ''] = call.split(' ')
    await send(given === undefined ? { method, target, headers: [] } : { method, target, body: given })
    const { method: sentMethod, url, body } = sent()
    t.strictSame([`${sentMethod} ${url}`, body], [becomes, expected], call)
  }
})
