import t from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { ask, portOf, problemOf, speak } from '../http/wire.ts'

const ANONYMOUS = { authenticated: false, loginUrl: '/auth/login' }

t.test('/auth/session responds 200 without a session, whatever the cookies hold', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const good = browser.cookies.get('session')!.value
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
    for (const target of ['/auth/session', '/flux/a']) {
      const answer = await ask(portOf(bff), {
        target,
        headers: [
          ['Cookie', cookie],
          ['Sec-Fetch-Site', 'same-origin'],
        ],
      })
      const what = `${target} ${cookie.slice(0, 40)}`
      if (target === '/auth/session') {
        t.equal(answer.status, 200, what)
        t.strictSame(problemOf(answer), ANONYMOUS, what)
      } else {
        t.equal(answer.status, 401, what)
        t.match(problemOf(answer), { code: 'login_required', loginUrl: '/auth/login' }, what)
        t.ok(answer.headers.get('www-authenticate')?.[0]?.startsWith('Session'), what)
      }
    }
  }
  t.match(
    (await browser.fetch('/auth/session')).json(),
    { authenticated: true },
    'the valid cookie still works',
  )
})

t.test('a cookie that another site can set beside the prefix is not ours', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const good = browser.cookies.get('session')!.value
  // Node reads a header byte as one character, and JavaScript trims A0 (no-break space), 0B and 0C.
  for (const space of ['\xa0', '\xa0 ', ' \xa0', '\xa0\t']) {
    const lines = [
      `Host: localhost:${portOf(bff)}`,
      `Cookie: a=1;${space}session=${good}`,
      'Connection: close',
    ]
    const text = `GET /auth/session HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`
    const [response] = (await speak(portOf(bff), Buffer.from(text, 'latin1'))).answers
    t.strictSame(problemOf(response!), ANONYMOUS, JSON.stringify(space))
  }
})

t.test('a valid cookie is found among others of any size and form', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const good = browser.cookies.get('session')!.value
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
    for (const target of ['/auth/session', '/flux/a?values=1']) {
      const answer = await ask(portOf(bff), {
        target,
        headers: [
          ['Cookie', cookie],
          ['Sec-Fetch-Site', 'same-origin'],
        ],
      })
      t.equal(answer.status, 200, `${target} ${cookie.slice(0, 40)}`)
      t.not(problemOf(answer).authenticated, false, `${target} ${cookie.slice(0, 40)}`)
    }
  }
  const twoLines = await ask(portOf(bff), {
    target: '/flux/a?values=1',
    headers: [
      ['Cookie', 'a=1'],
      ['Cookie', `session=${good}`],
      ['X-CSRF', '1'],
    ],
  })
  t.equal(twoLines.status, 200, 'in a second Cookie header field')
})
