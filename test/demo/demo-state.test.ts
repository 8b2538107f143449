import t from 'tap'
import { asCurl, asFetch, quote } from '../../demo/page/copy-as.ts'
import { examplesOf, splitExact } from '../../demo/page/exact.ts'
import { type Received, refreshStatus } from '../../demo/page/received.ts'
import { clientCall, fluxPath, siteCall } from '../../demo/page/requests.ts'
import { compareSessions, endingText, formatSpan, signInFailureText } from '../../demo/page/session.ts'

const LIVE = {
  sessionId: '0123456789ab',
  accessTokenExpiresAt: '1970-01-01T00:25:00.000Z',
  idleExpiresAt: '1970-01-01T00:33:20.000Z',
}

t.test('two looks at a session tell what happened between them', async (t) => {
  t.same(compareSessions(null, null), [])
  t.same(compareSessions(null, LIVE), ['signed_in'])
  t.same(compareSessions(LIVE, null), ['ended'])
  t.same(compareSessions(LIVE, { ...LIVE }), [])
  t.same(compareSessions(LIVE, { ...LIVE, accessTokenExpiresAt: '1970-01-01T00:26:00.000Z' }), ['refreshed'])
  t.same(compareSessions(LIVE, { ...LIVE, idleExpiresAt: '1970-01-01T00:34:00.000Z' }), ['extended'])
  t.same(compareSessions(LIVE, { ...LIVE, sessionId: 'ba9876543210' }), ['replaced'])
})

t.test('the status of the newest refresh follows what the platform received', async (t) => {
  const refresh = (values: Partial<Received>): Received => ({
    seq: 1,
    endpoint: 'token',
    kind: 'refresh_token',
    method: 'POST',
    path: '/oauth/token',
    outcome: null,
    status: null,
    fault: null,
    presented: null,
    issued: null,
    ...values,
  })
  const read = refresh({ endpoint: 'resource', kind: 'GetFlux', status: 200, presented: 2 })
  const granted = refresh({ outcome: 'granted', status: 200, issued: 2 })
  const down = refresh({ outcome: 'fault', status: 503, fault: 'status' })
  const numbers = { held: 2, replaced: 1 }

  t.equal(refreshStatus([read], { held: 0, replaced: 0 }), null)
  t.match(refreshStatus([read], { held: 2, replaced: 0 }), {
    tone: 'good',
    text: /replaces access token #2 before/,
  })
  t.match(refreshStatus([granted, read], numbers), { tone: 'good', text: /replaced access token #1 by #2\./ })
  t.match(refreshStatus([granted, down, read], numbers), {
    tone: 'warn',
    text: 'The platform gives no new token (503). The server tries again.',
  })
  t.match(refreshStatus([down, granted, read], numbers), { tone: 'good', text: /by #2\./ })
  t.match(refreshStatus([refresh({ outcome: 'fault', fault: 'drop' })], numbers), { text: /\(no answer\)/ })
  t.match(refreshStatus([refresh({ outcome: 'granted', fault: 'drop', issued: 3 })], numbers), {
    tone: 'warn',
    text: /issued token #3, but its answer got lost/,
  })
  t.match(refreshStatus([refresh({})], numbers), { tone: 'warn', text: /has not answered yet/ })
  t.match(refreshStatus([refresh({ outcome: 'invalid_grant', status: 400 })], numbers), { text: /refuses/ })
})

t.test('each reason of an end has a sentence of its own', async (t) => {
  t.match(endingText('refused'), /access was withdrawn/)
  t.match(endingText('news'), /session is over/)
  t.match(endingText(undefined), /session is over/)
})

t.test('time spans are written for people', async (t) => {
  t.equal(formatSpan(-5), '0 s')
  t.equal(formatSpan(4200), '5 s')
  t.equal(formatSpan(125_000), '2 min 05 s')
  t.equal(formatSpan(7_500_000), '2 h 05 min')
})

t.test('a refused sign-in has a sentence, and unknown errors are not repeated', async (t) => {
  t.match(signInFailureText('access_denied'), /You refused access/)
  t.match(signInFailureText('<script>'), /did not succeed/)
  t.match(signInFailureText('constructor'), /did not succeed/)
})

t.test('a Flux is addressed with and without an account code', async (t) => {
  t.equal(fluxPath({ wac: '', fluxId: 'power', format: 'CSV' }), '/flux/power?format=CSV')
  t.equal(fluxPath({ wac: 'DEMO', fluxId: 'a/b', format: 'JSON' }), '/flux/DEMO/a%2Fb?format=JSON')
})

t.test('a Site is changed by either route, and all members are sent', async (t) => {
  const form = { wac: '', siteId: 7, name: 'N', description: '', code: '' }
  t.same(siteCall({ ...form, route: 'PUT', parent: null }), {
    method: 'PUT',
    path: '/site/7',
    body: '{"name":"N","description":"","code":"","parentInfrastructureID":null}',
  })
  t.same(siteCall({ ...form, route: 'PUT', wac: 'DEMO', parent: null }), {
    method: 'PUT',
    path: '/site/DEMO/7',
    body: '{"name":"N","description":"","code":"","parentInfrastructureID":null}',
  })
  t.same(siteCall({ ...form, route: 'POST', wac: 'DEMO', parent: 3 }), {
    method: 'POST',
    path: '/site',
    body: '{"siteID":7,"name":"N","description":"","code":"","parentInfrastructureID":3,"wac":"DEMO"}',
  })
})

t.test('numbers that JavaScript changes are marked, and the text stays as it was', async (t) => {
  const text =
    '{"id":9007207803376519,"n":12,"f":1.5,"values":[{"date":"2026-01-02T03:00:00.1234567Z","value":21.50}]}'
  const parts = splitExact(text)
  t.equal(parts.map((part) => part.text).join(''), text)
  t.same(examplesOf(parts), [
    { text: '9007207803376519', parsed: '9007207803376520' },
    { text: '2026-01-02T03:00:00.1234567Z', parsed: '2026-01-02T03:00:00.123Z' },
    { text: '21.50', parsed: '21.5' },
  ])
  t.same(splitExact('no number'), [{ text: 'no number' }])
  const noInstant = '"2026-99-99T03:00:00.1234567Z"'
  t.same(splitExact(noInstant), [{ text: noInstant }], 'a text that is no instant stays')
  t.same(
    examplesOf(splitExact('id,date,value\r\n9007207803376519,2026-01-02T03:00:00.1234567Z,4.10\r\n')).length,
    3,
    'CSV',
  )
})

t.test('a call is copied as fetch, as curl and with the client', async (t) => {
  const read = { method: 'GET', path: '/flux/power?format=CSV' } as const
  t.equal(asFetch(read), "await (await fetch('/flux/power?format=CSV')).text()")
  t.equal(
    asCurl(read, 'http://a.test'),
    `curl 'http://a.test/flux/power?format=CSV' -H 'X-CSRF: 1' -b "session=$SESSION_COOKIE"`,
  )
  t.match(asCurl(read, 'https://a.test'), '-b "__Host-Http-session=$SESSION_COOKIE"')
  const form = { wac: '', siteId: 7, name: "O'Neil", description: '', code: '', parent: null }
  const change = siteCall({ ...form, route: 'PUT' })
  t.match(
    asCurl(change, 'http://a.test'),
    `-d '{"name":"O'\\''Neil","description":"","code":"","parentInfrastructureID":null}'`,
  )
  t.match(
    asFetch(change),
    `body: '{"name":"O\\'Neil","description":"","code":"","parentInfrastructureID":null}'`,
  )
  t.equal(
    clientCall({ ...form, route: 'PUT', wac: 'ACME' }),
    `await updateSite(7, {"name":"O'Neil","description":"","code":"","parentInfrastructureID":null}, {"wac":"ACME"})`,
  )
  t.equal(quote("a\\'\n"), "'a\\\\\\'\\n'")
})
