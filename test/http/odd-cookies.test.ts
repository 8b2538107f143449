import t from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { ask, portOf, problemOf, speak } from './wire.ts'

const ANONYMOUS = { authenticated: false, loginUrl: '/auth/login' }

t.test('a server with one signed-in user', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const good = browser.cookies.get('session')!.value
  const port = portOf(bff)
  /** Asks with these Cookie fields. */
  const askWith = async (target: string, ...cookies: string[]) => {
    const headers = cookies.map((cookie) => ['Cookie', cookie] as [string, string])
    return await ask(port, { target, headers: [...headers, ['Sec-Fetch-Site', 'same-origin']] })
  }

  await t.test('responds to each odd Cookie field as without a session', async (t) => {
    for (const cookie of [
      '',
      'session=',
      'session',
      'session=rubbish',
      `session=${'A'.repeat(43)}.${'A'.repeat(43)}`,
      `session=${good.slice(0, -1)}`,
      `session=${good}x`,
      `session="${good}"`,
      `session=${encodeURIComponent(good).replace('.', '%2E')}`,
      `session=${good}; session=${good}`,
      `session=${good}; session=other`,
      `session=first;session=${good}`,
      `SESSION=${good}`,
      `xsession=${good}`,
      `record=${good}`,
      `session=${'x'.repeat(8_000)}`,
      `x=session=${good}`,
      '=;;=; ;session',
    ]) {
      const what = cookie.slice(0, 40)
      const info = await askWith('/auth/session', cookie)
      t.strictSame([info.status, problemOf(info)], [200, ANONYMOUS], what)
      const call = await askWith('/flux/a', cookie)
      t.equal(call.status, 401, what)
      t.match(problemOf(call), { code: 'login_required', loginUrl: '/auth/login' }, what)
      t.ok(call.headers.get('www-authenticate')?.[0]?.startsWith('Session'), what)
    }
    t.match(
      (await browser.fetch('/auth/session')).json(),
      { authenticated: true },
      'the valid cookie still works',
    )
  })

  await t.test('does not take a cookie that another site can set beside the prefix', async (t) => {
    // Node reads a header byte as one character, and JavaScript trims A0 (no-break space), 0B and 0C.
    for (const space of ['\xa0', '\xa0 ', ' \xa0', '\xa0\t']) {
      const lines = [`Host: localhost:${port}`, `Cookie: a=1;${space}session=${good}`, 'Connection: close']
      const text = `GET /auth/session HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`
      const [response] = (await speak(port, Buffer.from(text, 'latin1'))).answers
      t.strictSame(problemOf(response!), ANONYMOUS, JSON.stringify(space))
    }
  })

  await t.test('finds a valid cookie among others of any size and form', async (t) => {
    for (const cookie of [
      `a=1; session=${good}; b=2`,
      `session=${good};b=2`,
      `a=1;session=${good}`,
      `big=${'x'.repeat(8_000)}; session=${good}`,
      `session=${good}; big=${'x'.repeat(8_000)}`,
      `%=%; bad%zz=%zz; session=${good}`,
      `=; ; =x; session=${good}; session`,
      `xsession=other; session=${good}; sessionx=other; my.session=other`,
      `Session=other; session=${good}`,
      `a="b; session=${good}`,
      `__proto__=x; constructor=y; session=${good}`,
      `record=rubbish; session=${good}`,
    ]) {
      t.match(problemOf(await askWith('/auth/session', cookie)), { authenticated: true }, cookie.slice(0, 40))
    }
    const inSecondField = await askWith('/flux/a?values=1', 'a=1', `session=${good}`)
    t.equal(inSecondField.status, 200, 'in a second Cookie header field')
  })
})
