import t from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'

t.test('a user signs in, reads a flux, edits a site and signs out', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()

  t.strictSame((await browser.fetch('/auth/session')).json(), {
    authenticated: false,
    loginUrl: '/auth/login',
  })
  const back = await signIn(browser, sandbox, '/app?tab=1#charts')
  t.equal(back.status, 303)
  t.equal(back.headers.location, '/app?tab=1#charts')

  const session = (await browser.fetch('/auth/session')).json()
  t.match(session, { authenticated: true, flow: 'code', refreshable: true, wac: 'DEMO' })

  const flux = await browser.fetch('/flux/temperature')
  t.equal(flux.status, 200)
  t.match(flux.headers['content-type'], 'application/json')

  const site = await browser.fetch('/site/1', {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'North', parentInfrastructureID: null }),
  })
  t.equal(site.status, 200, site.text)
  t.match(site.json(), { wType: 'Site', id: 1, name: 'North' })

  const out = await browser.fetch('/auth/logout', { method: 'POST' })
  t.equal(out.status, 204, out.text)
  t.equal(browser.cookies.size, 0)
  const refused = await browser.fetch('/flux/temperature')
  t.equal(refused.status, 401)
  t.match(refused.json(), { code: 'login_required', loginUrl: '/auth/login' })
})
