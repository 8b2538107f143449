import t from 'tap'
import { asCurl, asFetch, quote } from '../../demo/page/copy-as.ts'
import { examplesOf, splitExact } from '../../demo/page/exact.ts'
import { type Received, refreshStatus } from '../../demo/page/received.ts'
import { clientCall, siteCall } from '../../demo/page/requests.ts'

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
