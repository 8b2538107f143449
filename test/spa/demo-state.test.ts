import t from 'tap'
import { cleanAddress, readLoginNotice } from '../../src/spa/demo/login-notice.ts'
import { fluxPath, siteCall } from '../../src/spa/demo/requests.ts'
import { compareSessions, formatSpan, type LiveSession, readSession } from '../../src/spa/demo/session.ts'

const LIVE: LiveSession = {
  flow: 'code',
  createdAt: 1_000_000,
  idleExpiresAt: 2_000_000,
  expiresAt: 3_000_000,
  accessTokenExpiresAt: 1_500_000,
  refreshable: true,
  wac: 'DEMO',
}

const BODY = {
  authenticated: true,
  flow: 'code',
  createdAt: '1970-01-01T00:16:40.000Z',
  idleExpiresAt: '1970-01-01T00:33:20.000Z',
  expiresAt: '1970-01-01T00:50:00.000Z',
  accessTokenExpiresAt: '1970-01-01T00:25:00.000Z',
  refreshable: true,
  wac: 'DEMO',
}

t.test('the session is read from its body, and a body of another shape is told apart', async (t) => {
  t.same(readSession(JSON.stringify(BODY)), LIVE)
  t.equal(readSession('{"authenticated":false,"loginUrl":"/auth/login"}'), null)
  t.equal(readSession('<html>'), undefined)
  t.equal(readSession('{}'), undefined)
  t.equal(readSession(JSON.stringify({ ...BODY, expiresAt: 'soon' })), undefined)
})

t.test('two looks at a session tell what happened between them', async (t) => {
  t.same(compareSessions(null, null), [])
  t.same(compareSessions(null, LIVE), ['signed_in'])
  t.same(compareSessions(LIVE, null), ['ended'])
  t.same(compareSessions(LIVE, { ...LIVE }), [])
  t.same(compareSessions(LIVE, { ...LIVE, accessTokenExpiresAt: 1_600_000 }), ['refreshed'])
  t.same(compareSessions(LIVE, { ...LIVE, idleExpiresAt: 2_100_000 }), ['extended'])
  t.same(compareSessions(LIVE, { ...LIVE, createdAt: 1_200_000, accessTokenExpiresAt: 1_700_000 }), [
    'replaced',
  ])
})

t.test('time spans are written for people', async (t) => {
  t.equal(formatSpan(-5), '0 s')
  t.equal(formatSpan(4200), '5 s')
  t.equal(formatSpan(125_000), '2 min 05 s')
  t.equal(formatSpan(7_500_000), '2 h 05 min')
})

t.test('a refused sign-in is told in words, and unknown errors are not repeated', async (t) => {
  t.match(readLoginNotice(new URL('http://a.test/?login_error=access_denied')), /You refused access/)
  t.match(readLoginNotice(new URL('http://a.test/?login_error=%3Cscript%3E')), /did not succeed/)
  t.match(readLoginNotice(new URL('http://a.test/?login_error=constructor')), /did not succeed/)
  t.equal(readLoginNotice(new URL('http://a.test/?other=1')), null)
})

t.test('the address is cleaned of what a sign-in left in it, and of nothing else', async (t) => {
  const clean = (address: string): string => cleanAddress(new URL(address)).href
  t.equal(clean('http://a.test/p?login_error=access_denied#_'), 'http://a.test/p')
  t.equal(clean('http://a.test/p?x=1&login_error=access_denied#top'), 'http://a.test/p?x=1#top')
  t.equal(clean('http://a.test/p?x=a%20b#_'), 'http://a.test/p?x=a%20b')
})

t.test('a Flux is addressed with and without an account code', async (t) => {
  t.equal(fluxPath({ wac: '', fluxId: 'power', format: 'CSV' }), '/flux/power?format=CSV')
  t.equal(fluxPath({ wac: 'DEMO', fluxId: 'a/b', format: 'JSON' }), '/flux/DEMO/a%2Fb?format=JSON')
})

t.test('a Site is changed by either route, and only what was filled in is sent', async (t) => {
  const form = { wac: '', siteId: 7, name: 'N', description: '', code: '' }
  t.same(siteCall({ ...form, route: 'PUT', parent: undefined }), {
    method: 'PUT',
    path: '/site/7',
    body: '{"name":"N"}',
  })
  t.same(siteCall({ ...form, route: 'PUT', wac: 'DEMO', parent: null }), {
    method: 'PUT',
    path: '/site/DEMO/7',
    body: '{"name":"N","parentInfrastructureID":null}',
  })
  t.same(siteCall({ ...form, route: 'POST', wac: 'DEMO', parent: 3 }), {
    method: 'POST',
    path: '/site',
    body: '{"siteID":7,"name":"N","parentInfrastructureID":3,"wac":"DEMO"}',
  })
})
