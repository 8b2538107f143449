import t, { type Test } from 'tap'
import type { Answer, Browser } from '../helpers/browser.ts'
import { type Bff, decide, signIn, startBff, startSandbox } from '../helpers/system.ts'
import { ask, portOf } from '../http/wire.ts'

const sandbox = await startSandbox(t)

/** The value of the session cookie that a response sets. */
function sessionOf({ setCookies }: Answer): string {
  const line = setCookies.find((cookie) => cookie.startsWith('session='))
  return line?.slice('session='.length, line.indexOf(';')) ?? ''
}

/** Whether a session lives, whatever cookies the browser still has. */
async function lives(bff: Bff, session: string): Promise<boolean> {
  const { status } = await ask(portOf(bff), {
    target: '/flux/a',
    headers: [
      ['X-CSRF', '1'],
      ['Cookie', `session=${session}`],
    ],
  })
  return status === 200
}

/** The addresses of so many sign-ins that are ready to come back. */
async function begin(browser: Browser, count: number): Promise<string[]> {
  const starts: Answer[] = []
  for (let i = 0; i < count; i += 1) starts.push(await browser.navigate('/auth/login'))
  return Promise.all(starts.map(({ headers }) => decide(sandbox, String(headers.location))))
}

/** Sends all callbacks at once, with the same cookies. */
async function comeBackAtOnce(t: Test, browser: Browser, addresses: string[]): Promise<string[]> {
  const gate = sandbox.hold('token', { only: 'authorization_code' })
  const answers = addresses.map((address) => browser.navigate(address, { from: 'cross-site' }))
  await gate.arrivals(addresses.length)
  gate.release()
  const sessions = (await Promise.all(answers)).map(sessionOf)
  t.equal(new Set(sessions).size, addresses.length, 'each callback began a session')
  return sessions
}

for (const hadSession of [true, false]) {
  const before = hadSession ? 'that had a session' : 'without a session'
  t.test(
    `two callbacks at once of a browser ${before} leave one session, which a sign-out ends`,
    async (t) => {
      const bff = await startBff(t, sandbox)
      const browser = bff.browser()
      const old = hadSession ? sessionOf(await signIn(browser, sandbox)) : null
      const sessions = await comeBackAtOnce(t, browser, await begin(browser, 2))
      const alive = await Promise.all(sessions.map((session) => lives(bff, session)))
      t.equal(alive.filter(Boolean).length, 1, 'one session lives')
      if (old !== null) t.notOk(await lives(bff, old))
      // The browser keeps the cookies of the response that comes last, which may be those of the ended session.
      for (const [name, session] of sessions.entries()) {
        const tab = bff.browser()
        tab.cookies.set('session', { value: session, strict: true })
        if (alive[name]) continue
        t.equal((await tab.fetch('/auth/logout', { method: 'POST' })).status, 204)
      }
      for (const session of sessions) t.notOk(await lives(bff, session), 'the sign-out ended it')
    },
  )
}

t.test('a new sign-in ends the session that the session of this browser was replaced by', async (t) => {
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  const sessions = await comeBackAtOnce(t, browser, await begin(browser, 2))
  const alive = await Promise.all(sessions.map((session) => lives(bff, session)))
  const tab = bff.browser()
  tab.cookies.set('session', { value: sessions[alive.indexOf(false)]!, strict: false })
  const next = sessionOf(await signIn(tab, sandbox))
  t.notOk(await lives(bff, sessions[alive.indexOf(true)]!))
  t.ok(await lives(bff, next))
})

t.test('a session that a sign-in replaces is not revoked: a token may be one for each user', async (t) => {
  const bff = await startBff(t, sandbox, { OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke` })
  const browser = bff.browser()
  sandbox.journal.clear()
  await signIn(browser, sandbox)
  await signIn(browser, sandbox)
  await browser.fetch('/auth/logout', { method: 'POST' })
  // The revocation of the replaced session would have been sent before those of the sign-out.
  const revoked = await sandbox.journal.until({ endpoint: 'revoke' }, 2)
  t.equal(revoked.length, 2, 'both tokens of the second session')
})
