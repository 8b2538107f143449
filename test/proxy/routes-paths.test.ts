import t from 'tap'
import { field } from '../http/wire.ts'
import { BAD_FLUX, BAD_SITE, BAD_WAC, GOOD } from './odd-paths.ts'
import { proxyCaller } from './proxy-caller.ts'

t.test('a valid path becomes the documented one', async (t) => {
  const { get, sent } = await proxyCaller()
  for (const [target, upstream] of GOOD) {
    await get(target)
    const { method, url } = sent()
    t.strictSame([method, url], ['GET', upstream], target)
  }
})

t.test('a malformed fluxId, siteId or account is 400, and nothing is sent', async (t) => {
  const { send, refused } = await proxyCaller()
  const fluxes = [
    ...BAD_FLUX.flatMap((part) => [`/flux/${part}`, `/flux/DEMO/${part}`]),
    ...BAD_WAC.map((part) => `/flux/${part}/a`),
  ]
  const sites = [
    ...BAD_SITE.flatMap((part) => [`/site/${part}`, `/site/DEMO/${part}`]),
    ...BAD_WAC.map((part) => `/site/${part}/1`),
  ]
  for (const [method, body, targets] of [
    ['GET', undefined, fluxes],
    ['PUT', '{}', sites],
  ] as const) {
    for (const target of targets) {
      const answer = await send({ method, target, ...(body === undefined ? {} : { body }) })
      refused(t, answer, /fluxId|wac|siteID|percent|fragment|HTTP/, target.slice(0, 60))
    }
  }
})

t.test('the largest siteId is sent to the last digit', async (t) => {
  const { put, sent } = await proxyCaller()
  for (const [given, expected] of [
    ['9007199254740991', '9007199254740991'],
    ['0', '0'],
    ['007', '7'],
  ] as const) {
    await put('{}', `/site/${given}`)
    const { url, body } = sent()
    t.equal(url, `/DEMO/Infrastructure/Site/${expected}`)
    t.match(JSON.parse(body), { siteID: Number(expected) })
  }
})

t.test('dots and slashes in a path reach no other path of the platform', async (t) => {
  const { sandbox, get } = await proxyCaller()
  for (const target of [
    ...[
      '/flux/../json/reply/UpdateSite',
      '/flux/DEMO/../../oauth/token',
      '/flux/DEMO/a/../../x',
      '/flux/./a',
    ],
    ...['/./flux/a', '/x/../flux/a', '/flux/%2e%2e/%2e%2e', '/flux/DEMO/%2e%2e%2f%2e%2e%2foauth%2ftoken'],
    ...['//evil.test/flux/a', '/flux//evil.test', '/flux/https:%2f%2fevil.test', '/flux/http://evil.test/'],
    ...['/flux/@evil.test', '/flux/evil.test:80', '\\flux\\a', '/flux\\a'],
  ]) {
    const answer = await get(target)
    t.ok(answer.status === 400 || answer.status === 404, `${target}: ${answer.status}`)
    t.equal(field(answer, 'location'), undefined, target)
  }
  t.strictSame(sandbox.journal.entries(), [])
})

t.test('without a configured or given account the problem names wac', async (t) => {
  const { send, refused } = await proxyCaller({ WAC: '' })
  for (const question of [
    { target: '/flux/a' },
    { method: 'PUT', target: '/site/1', body: '{}' },
    { method: 'POST', target: '/site', body: '{"siteID":1}' },
  ])
    refused(t, await send(question), /\bwac\b/, question.target)
})
