import t from 'tap'
import { cookieHeader, isProblem } from '../helpers/browser.ts'
import { freePort } from '../helpers/ports.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { ask, OWN, portOf } from '../http/wire.ts'

/** Name and attributes of a `Set-Cookie` line, without its value and times. */
function shape(line: string): string {
  const [pair, ...attributes] = line.split('; ')
  const kept = attributes.filter((attribute) => !/^(Expires|Max-Age)=/.test(attribute)).sort()
  return [pair!.split('=', 1)[0], ...kept].join('; ')
}

for (const scheme of ['http', 'https']) {
  t.test(`a logout from an ${scheme} site ends the session and clears its cookies`, async (t) => {
    const sandbox = await startSandbox(t)
    const port = String(await freePort())
    const bff = await startBff(t, sandbox, { PORT: port, PUBLIC_URL: `${scheme}://localhost:${port}` })
    const browser = bff.browser()
    const set = (await signIn(browser, sandbox)).setCookies.filter((line) => /session|record/.test(line))
    const cookie = cookieHeader(browser)
    t.equal((await browser.fetch('/flux/a')).status, 200)

    const out = await browser.fetch('/auth/logout', { method: 'POST' })
    t.equal(out.status, 204)
    t.equal(out.text, '')
    t.notOk(out.headers['clear-site-data'], 'it would stall Chromium for seconds')
    t.equal(out.headers['cache-control'], 'no-store')
    // A browser that has bound the session to its device has a third one.
    const device = scheme === 'https' ? ['__Host-device; HttpOnly; Path=/; SameSite=Strict; Secure'] : []
    t.strictSame(out.setCookies.map(shape).sort(), [...set.map(shape), ...device].sort())
    for (const line of out.setCookies) {
      t.match(line, /^[^=]+=;/)
      t.match(line, /Max-Age=0|Expires=Thu, 01 Jan 1970/)
    }
    t.equal(browser.cookies.size, 0)
    const headers = [OWN, ['Cookie', cookie]] as const
    t.equal((await ask(portOf(bff), { target: '/flux/a', headers })).status, 401, 'the old cookie is dead')
    const again = await ask(portOf(bff), { method: 'POST', target: '/auth/logout', headers })
    t.equal(again.status, 204, 'and signing out once more is fine')
  })
}

t.test('an HTML form signs out and leads to the start, also from a page that hides its origin', async (t) => {
  const { bff, sandbox } = await shared()
  for (const origin of [bff.publicUrl, 'null']) {
    const browser = bff.browser()
    await signIn(browser, sandbox)
    const headers = {
      origin,
      'sec-fetch-site': 'same-origin',
      'content-type': 'application/x-www-form-urlencoded',
    }
    const out = await browser.navigate('/auth/logout', { method: 'POST', headers, body: 'a=b' })
    t.strictSame([out.status, out.headers.location, out.text], [303, '/', ''])
    t.equal(browser.cookies.size, 0)
  }
})

t.test('with OAUTH_END_SESSION_URL a logout says where to go on, and an HTML form goes there', async (t) => {
  const { bff, sandbox } = await shared({ OAUTH_END_SESSION_URL: 'https://sso.example/logout/?a=b' })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const out = await browser.fetch('/auth/logout', { method: 'POST' })
  t.strictSame([out.status, browser.cookies.size], [200, 0])
  const { endSessionUrl, ...more } = JSON.parse(out.text)
  t.strictSame(more, {})
  t.ok(endSessionUrl.startsWith('https://sso.example/logout/?a=b&'))
  t.strictSame(Object.fromEntries(new URL(endSessionUrl).searchParams), {
    a: 'b',
    client_id: 'test-client',
    post_logout_redirect_uri: `${bff.publicUrl}/`,
  })
  t.equal((await browser.fetch('/auth/logout', { method: 'POST' })).status, 200, 'without a session too')
  const headers = { origin: bff.publicUrl, 'sec-fetch-site': 'same-origin' }
  const form = await browser.navigate('/auth/logout', { method: 'POST', headers })
  t.strictSame([form.status, form.headers.location], [303, endSessionUrl])
})

t.test('a logout accepts any body of any type or none, and needs no session', async (t) => {
  const { sandbox, bff, port } = await shared()
  for (const cookie of ['', 'session=rubbish', `session=${'A'.repeat(43)}.${'B'.repeat(43)}`]) {
    const headers = [OWN, ['Cookie', cookie]] as const
    t.equal((await ask(port, { method: 'POST', target: '/auth/logout', headers })).status, 204, cookie)
  }
  for (const [type, body] of [
    [null, undefined],
    [null, 'x'],
    ['application/json', '{"a":'],
    ['multipart/form-data; boundary=x', '--x--'],
    ['rubbish', 'x'],
    ['application/json', `"${'x'.repeat(20_000)}"`],
  ] as const) {
    const browser = bff.browser()
    await signIn(browser, sandbox)
    const answer = await browser.fetch('/auth/logout', {
      method: 'POST',
      ...(body === undefined ? {} : { body }),
      headers: type === null ? {} : { 'content-type': type },
    })
    t.equal(answer.status, 204, `${type} ${body?.slice(0, 10)}`)
    t.equal(browser.cookies.size, 0)
  }
})

t.test('a link, an image or another site can neither sign a user out nor keep one signed in', async (t) => {
  const { browser } = await signedIn()
  for (const target of ['/auth/logout', '/auth/session'])
    for (const site of ['cross-site', 'same-site', 'none']) {
      const headers = { 'sec-fetch-site': site }
      const answer = await browser.fetch(target, { method: 'POST', headers })
      isProblem(t, answer, 403, 'cross_origin', `${target} ${site}`)
      t.strictSame(answer.setCookies, [])
    }
  t.equal((await browser.fetch('/flux/a')).status, 200)
})

t.test('a logout revokes the tokens and succeeds if the revocation fails', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, {
    OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke`,
    TOKEN_TIMEOUT_MS: '60000',
  })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  t.equal((await browser.fetch('/auth/logout', { method: 'POST' })).status, 204)
  const [revoked] = await sandbox.journal.until({ endpoint: 'revoke', outcome: 'revoked' }, 2)
  t.match(revoked?.form, { token: /./, client_id: /./, client_secret: /./ })
  const gate = sandbox.hold('revoke')
  sandbox.faults.set({ revocationEndpoint: { mode: 'drop' } })
  await signIn(browser, sandbox)
  const out = await browser.fetch('/auth/logout', { method: 'POST' })
  t.equal(out.status, 204)
  await gate.arrived
  t.notMatch(bff.log(), 'revocation.failed', 'the response does not wait for the revocation')
  gate.release()
  await until('the failure is logged', () => bff.log().includes('"event":"revocation.failed"'))
})

t.test('a logout ends a session whose cookie is repeated', async (t) => {
  const { browser, port } = await signedIn()
  const [session, record] = ['session', 'record'].map((name) => browser.cookies.get(name)!.value)
  const headers = [OWN, ['Cookie', `session=planted; session=${session}; record=${record}`]] as const
  t.equal((await ask(port, { method: 'POST', target: '/auth/logout', headers })).status, 204)
  t.equal((await browser.fetch('/flux/a')).status, 401)
})
