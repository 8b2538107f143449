import t, { type Test } from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import type { Answer, Browser } from '../helpers/browser.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { signIn } from '../helpers/system.ts'
import { ask, OWN } from '../http/wire.ts'
import { begin, comeBack } from './sign-ins.ts'

/** The value of the session cookie that a response sets. */
function sessionOf({ setCookies }: Answer): string {
  const line = setCookies.find((cookie) => cookie.startsWith('session='))
  return line?.slice('session='.length, line.indexOf(';')) ?? ''
}

/** Whether a session lives, whatever cookies the browser still has. */
async function lives(port: number, session: string): Promise<boolean> {
  const headers = [OWN, ['Cookie', `session=${session}`]] as const
  return (await ask(port, { target: '/flux/a', headers })).status === 200
}

/** The sessions of two callbacks that this browser sends at once, with the same cookies. */
async function comeBackTwice(t: Test, sandbox: Sandbox, browser: Browser): Promise<string[]> {
  const addresses = [await begin(browser, sandbox), await begin(browser, sandbox)]
  const gate = sandbox.hold('token', { only: 'authorization_code' })
  const answers = addresses.map((address) => comeBack(browser, address))
  await gate.arrivals(2)
  gate.release()
  const sessions = (await Promise.all(answers)).map(sessionOf)
  t.equal(new Set(sessions).size, 2, 'each callback began a session')
  return sessions
}

for (const hadSession of [true, false]) {
  const before = hadSession ? 'that had a session' : 'without a session'
  t.test(`two callbacks at once of a browser ${before} leave one session`, async (t) => {
    const { sandbox, bff, port } = await shared()
    const browser = bff.browser()
    const old = hadSession ? sessionOf(await signIn(browser, sandbox)) : null
    const sessions = await comeBackTwice(t, sandbox, browser)
    const alive = await Promise.all(sessions.map((session) => lives(port, session)))
    t.equal(alive.filter(Boolean).length, 1, 'one session lives')
    if (old !== null) t.notOk(await lives(port, old))
    // The browser keeps the cookies of the response that comes last, which may be those of the ended session.
    const tab = bff.browser()
    tab.cookies.set('session', { value: sessions[alive.indexOf(false)]!, strict: true })
    t.equal((await tab.fetch('/auth/logout', { method: 'POST' })).status, 204)
    for (const session of sessions) t.notOk(await lives(port, session), 'the sign-out ended it')
  })
}

t.test('a session that a sign-in replaces is not revoked: a token may be one for each user', async (t) => {
  const { authUrl } = (await shared()).sandbox
  const { sandbox, browser } = await signedIn({ OAUTH_REVOCATION_URL: `${authUrl}/oauth/revoke` })
  await signIn(browser, sandbox)
  await browser.fetch('/auth/logout', { method: 'POST' })
  // The revocation of the replaced session would have been sent before those of the sign-out.
  const revoked = await sandbox.journal.until({ endpoint: 'revoke' }, 2)
  t.equal(revoked.length, 2, 'both tokens of the second session')
})
