import t from 'tap'
import { startBff, startSandbox } from '../helpers/system.ts'
import { ask, field, portOf } from '../http/wire.ts'

t.test('a sign-in by another host name goes first to the same path and query at PUBLIC_URL', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const target = '/auth/login?returnTo=%2Fapp%3Fa%3D1%23b&flow=code'
  for (const host of [
    `127.0.0.1:${portOf(bff)}`,
    'evil.test',
    'localhost',
    `localhost.:${portOf(bff)}`,
    'a b',
    '',
  ]) {
    const answer = await ask(portOf(bff), { target, noHost: true, headers: [['Host', host]] })
    t.equal(answer.status, 303, host)
    t.equal(field(answer, 'location'), bff.publicUrl + target, host)
    t.equal(field(answer, 'cache-control'), 'no-store', host)
    t.equal(
      field(answer, 'set-cookie'),
      'sign-in-sent=1; Max-Age=60; Domain=localhost; Path=/auth/login; HttpOnly; SameSite=Lax',
      host,
    )
  }
  const warnings = bff.log().match(/"event":"login\.other_host".*/g)
  t.equal(warnings?.length, 1, 'one warning')
  t.match(warnings?.[0], `"host":"127.0.0.1:${portOf(bff)}","publicHost":"localhost:${portOf(bff)}"`)
  t.match(
    warnings?.[0],
    `a sign-in came by the host 127.0.0.1:${portOf(bff)}, and PUBLIC_URL is ${bff.publicUrl}: set PUBLIC_URL to the address that users open, or let the reverse proxy keep the Host header`,
  )
})

t.test('the warning shows a host that no browser sends bounded and printable', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const headers = [['Host', `a b\u00e9${'c'.repeat(500)}`]] as const
  await ask(portOf(bff), { target: '/auth/login', noHost: true, headers })
  t.match(bff.log(), /came by the host a\?b\?\?c{195}, and/)
})

t.test('a reverse proxy that changes Host costs one redirect and no loop', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const headers = [
    ['Host', 'internal:3000'],
    ['Cookie', 'a=b; sign-in-sent=1'],
  ] as const
  const answer = await ask(portOf(bff), { target: '/auth/login', noHost: true, headers })
  const { origin, searchParams } = new URL(field(answer, 'location')!)
  t.equal(origin, sandbox.authUrl)
  t.ok(searchParams.get('redirect_uri')?.startsWith(`${bff.publicUrl}/auth/callback/`))
  t.match(bff.log(), /"event":"login\.other_host"/)
})

t.test('the host of PUBLIC_URL needs no redirect, and takes back the note of one', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { PUBLIC_URL: 'http://App.localhost' })
  for (const host of ['app.localhost', 'APP.localhost', 'app.localhost:80']) {
    const headers = [
      ['Host', host],
      ['Cookie', 'sign-in-sent=1'],
    ] as const
    const answer = await ask(portOf(bff), { target: '/auth/login', noHost: true, headers })
    t.equal(new URL(field(answer, 'location')!).origin, sandbox.authUrl, host)
    t.match(answer.headers.get('set-cookie')?.join(' '), /sign-in-sent=;.*Domain=app\.localhost/, host)
  }
  t.notMatch(bff.log(), 'login.other_host')
})

t.test('a host of PUBLIC_URL that no Domain can name gets the same redirect', async (t) => {
  const sandbox = await startSandbox(t)
  for (const host of ['[::1]:3000', 'my_app.localhost']) {
    const bff = await startBff(t, sandbox, { PUBLIC_URL: `http://${host}` })
    const other = [['Host', 'other.test']] as const
    const answer = await ask(portOf(bff), { target: '/auth/login', noHost: true, headers: other })
    t.equal(answer.status, 303, host)
    t.equal(field(answer, 'location'), `http://${host}/auth/login`)
    const note = 'sign-in-sent=1; Max-Age=60; Path=/auth/login; HttpOnly; SameSite=Lax'
    t.equal(field(answer, 'set-cookie'), note, 'so a reverse proxy that changes Host makes no loop')
  }
})

t.test('X-Forwarded-Host counts from a proxy of TRUST_PROXY only', async (t) => {
  const sandbox = await startSandbox(t)
  for (const [trusted, origin] of [
    ['127.0.0.1', sandbox.authUrl],
    ['10.0.0.1', null],
  ] as const) {
    const bff = await startBff(t, sandbox, { TRUST_PROXY: trusted })
    const headers = [
      ['Host', 'internal:3000'],
      ['X-Forwarded-Host', `localhost:${portOf(bff)}`],
    ] as const
    const answer = await ask(portOf(bff), { target: '/auth/login', noHost: true, headers })
    t.equal(new URL(field(answer, 'location')!).origin, origin ?? bff.publicUrl)
  }
})

t.test('a request by another host name that may not sign in is refused', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  for (const [name, value] of [
    ['Sec-Fetch-Mode', 'cors'],
    ['Sec-Fetch-Dest', 'iframe'],
  ] as const) {
    const headers = [
      ['Host', 'other.test'],
      [name, value],
    ] as const
    t.equal((await ask(portOf(bff), { target: '/auth/login', noHost: true, headers })).status, 403)
  }
})

t.test('the reason of a callback without its login cookie blames another host only', async (t) => {
  const sandbox = await startSandbox(t)
  const settings = { PUBLIC_URL: 'http://app.localhost', TRUST_PROXY: '127.0.0.1', ACCESS_LOG: 'all' }
  const bff = await startBff(t, sandbox, settings)
  const target = `/auth/callback/${'n'.repeat(43)}?code=a`
  const blamed = 'the request names another host than PUBLIC_URL (app.localhost)'
  for (const [headers, blames] of [
    [[['Host', 'APP.localhost']], false],
    [[['Host', 'app.localhost:80']], false],
    [
      [
        ['Host', 'internal:3000'],
        ['X-Forwarded-Host', 'app.localhost'],
      ],
      false,
    ],
    [[['Host', 'internal:3000']], true],
  ] as const) {
    const answer = await ask(portOf(bff), { target, noHost: true, headers })
    t.equal(answer.status, 400)
    const lines = bff
      .log()
      .split('\n')
      .filter((line) => line.includes(field(answer, 'x-request-id')!) && line.includes('"request"'))
    t.equal(lines.length, 1)
    t.equal(lines[0]!.includes(blamed), blames, JSON.stringify(headers))
  }
})
