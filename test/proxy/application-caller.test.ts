import assert from 'node:assert/strict'
import t from 'tap'
import { isProblem } from '../helpers/browser.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { elapsed, unlessHeldUp } from '../helpers/wait.ts'

const PERMITTED = { OAUTH_FLOWS: 'code,client', CLIENT_FLUX_ALLOWED: 'DEMO/open,ACME/a.b~c' }

t.test('without a session the application reads what CLIENT_FLUX_ALLOWED names, no more', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, PERMITTED)
  const visitor = bff.browser()
  const answers = await Promise.all(Array.from({ length: 20 }, () => visitor.fetch('/flux/open')))
  for (const { status, headers } of answers) {
    t.equal(status, 200)
    t.equal(headers['cache-control'], 'private, no-cache')
    t.match(headers.vary, 'Cookie')
    t.notOk(headers['set-cookie'])
  }
  const requests = sandbox.journal.entries({ endpoint: 'token' })
  t.equal(requests.length, 1, 'one token for all')
  t.match(requests[0]?.form, { grant_type: 'client_credentials', scope: sandbox.baseUrl })

  t.equal((await visitor.fetch('/flux/DEMO/open?format=XML')).status, 200)
  t.equal((await visitor.fetch('/flux/ACME/a.b~c', { method: 'HEAD' })).status, 200)
  t.equal((await visitor.fetch('/flux/open', { headers: { cookie: 'session=forged' } })).status, 200)
  const before = sandbox.journal.entries({ endpoint: 'resource' }).length
  for (const path of ['/flux/other', '/flux/ACME/open', '/flux/demo/open', '/flux/Open'])
    isProblem(t, await visitor.fetch(path), 401, 'login_required', path)
  const write = { method: 'PUT', body: '{}', headers: { 'content-type': 'application/json' } }
  isProblem(t, await visitor.fetch('/site/1', write), 401, 'login_required', 'a write')
  const cross = await visitor.fetch('/flux/open', { headers: { 'sec-fetch-site': 'cross-site' } })
  isProblem(t, cross, 403, 'cross_origin', 'from another origin')
  t.equal(sandbox.journal.entries({ endpoint: 'resource' }).length, before)
  t.notMatch(bff.log(), /at-[A-Za-z0-9_-]{43}/, 'the token is not logged')
})

t.test('CLIENT_FLUX_ALLOWED=* permits every Flux of the allowed accounts', async (t) => {
  const env = { OAUTH_FLOWS: 'client', CLIENT_FLUX_ALLOWED: '*', WAC_ALLOWED: 'DEMO' }
  const { bff } = await shared(env)
  t.equal((await bff.browser().fetch('/flux/anything')).status, 200)
  isProblem(t, await bff.browser().fetch('/flux/ACME/a'), 403, 'wac_not_allowed', 'another account')
})

t.test('without the client flow every read needs a session', async (t) => {
  const { sandbox, bff } = await shared({ CLIENT_FLUX_ALLOWED: '*' })
  isProblem(t, await bff.browser().fetch('/flux/open'), 401, 'login_required', 'off')
  t.equal(sandbox.journal.entries().length, 0)
})

t.test("a session's own token is used while it lasts, and the application's afterwards", async (t) => {
  const { sandbox, browser } = await signedIn(PERMITTED)
  await browser.fetch('/flux/open')
  await browser.fetch('/flux/open')
  const users = () => sandbox.journal.entries({ endpoint: 'resource' }).map(({ username }) => username)
  t.strictSame(users(), ['alice', 'alice'])

  const kept = new Map(browser.cookies)
  await browser.fetch('/auth/logout', { method: 'POST' })
  for (const [name, cookie] of kept) browser.cookies.set(name, cookie)
  t.equal((await browser.fetch('/flux/open')).status, 200, 'with the cookie of a session that has ended')
  t.strictSame(users(), ['alice', 'alice', null])
  isProblem(t, await browser.fetch('/flux/other'), 401, 'login_required', 'what is not permitted')
})

t.test('a new token that expires on its way is replaced once more', async (t) => {
  // Its two seconds may be over too soon.
  await unlessHeldUp(500, async () => {
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox, PERMITTED)
    const visitor = bff.browser()
    await visitor.fetch('/flux/open')
    sandbox.expireAccessTokens()
    sandbox.faults.set({ tokenLifeSeconds: 2 })
    const request = sandbox.hold('token')
    const answer = visitor.fetch('/flux/open')
    await request.arrived
    const second = sandbox.hold('resource')
    request.release()
    await second.arrived
    await elapsed(2_100)
    sandbox.faults.set({ tokenLifeSeconds: 3_600 })
    second.release()
    const asked = (await answer).status
    assert.deepEqual([asked, sandbox.journal.entries({ endpoint: 'token' }).length], [200, 3])
  })
})
