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

t.test('two callbacks at once both end signed in, and the session before them ends', async (t) => {
  const { sandbox, bff, port } = await shared()
  const browser = bff.browser()
  const old = sessionOf(await signIn(browser, sandbox))
  for (const session of await comeBackTwice(t, sandbox, browser)) t.ok(await lives(port, session))
  t.notOk(await lives(port, old))
})

t.test('the cookies of a session that has ended or was replaced reach no session after it', async (t) => {
  const { sandbox, bff, port } = await shared()
  for (const how of ['replaced', 'logout'] as const) {
    const browser = bff.browser()
    await signIn(browser, sandbox)
    const noted = new Map(browser.cookies)
    /** Another client with the old cookies of these names. */
    const thief = (...names: string[]): Browser => {
      const other = bff.browser()
      for (const name of names) other.cookies.set(name, noted.get(name)!)
      return other
    }
    if (how === 'logout') await browser.fetch('/auth/logout', { method: 'POST' })
    const later = sessionOf(await signIn(browser, sandbox))

    for (const names of [['session', 'record'], ['session'], ['record']]) {
      const said = `${how}: with ${names.join(' and ')}`
      t.equal((await thief(...names).fetch('/flux/a')).status, 401, `${said}: no call`)
      const { authenticated, user } = (await thief(...names).fetch('/auth/session')).json() as {
        authenticated: boolean
        user?: unknown
      }
      t.strictSame([authenticated, user], [false, undefined], `${said}: nothing is read`)
      t.equal((await thief(...names).fetch('/auth/session', { method: 'POST' })).status, 401, said)
      t.equal((await thief(...names).fetch('/auth/logout', { method: 'POST' })).status, 204)
      t.ok(await lives(port, later), `${said}: a sign-out leaves the later session`)
      await signIn(thief(...names), sandbox)
      t.ok(await lives(port, later), `${said}: so does a sign-in`)
    }
  }
})

t.test('a session that a sign-in replaces is not revoked: a token may be one for each user', async (t) => {
  const { authUrl } = (await shared()).sandbox
  const { sandbox, browser } = await signedIn({ OAUTH_REVOCATION_URL: `${authUrl}/oauth/revoke` })
  await signIn(browser, sandbox)
  await browser.fetch('/auth/logout', { method: 'POST' })
  // The revocation of the replaced session would have been sent before those of the sign-out.
  const revoked = await sandbox.journal.until({ endpoint: 'revoke' }, 2)
  t.equal(revoked.length, 2, 'both tokens of the second session')
})
