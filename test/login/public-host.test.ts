import t from 'tap'
import { logLines } from '../helpers/log-lines.ts'
import { shared } from '../helpers/shared.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { ask, field, portOf } from '../http/wire.ts'

type Header = readonly [name: string, value: string]

/** A sign-in by this host, with these headers. */
const signInBy = (port: number, host: string, ...headers: Header[]) =>
  ask(port, { target: '/auth/login', noHost: true, headers: [['Host', host], ...headers] })

const NOTE = 'Path=/auth/login; HttpOnly; SameSite=Lax'

t.test('a sign-in by another host name goes first to the same path and query at PUBLIC_URL', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const port = portOf(bff)
  const target = '/auth/login?returnTo=%2Fapp%3Fa%3D1%23b&flow=code'
  const hosts = ['evil.test', 'localhost', `localhost.:${port}`, 'a b', '']
  for (const host of [`127.0.0.1:${port}`, ...hosts]) {
    const answer = await ask(port, { target, noHost: true, headers: [['Host', host]] })
    t.equal(answer.status, 303, host)
    t.equal(field(answer, 'location'), bff.publicUrl + target, host)
    t.equal(field(answer, 'cache-control'), 'no-store', host)
    t.equal(field(answer, 'set-cookie'), `sign-in-sent=1; Max-Age=60; Domain=localhost; ${NOTE}`, host)
  }
  const warnings = bff.log().match(/"event":"login\.other_host".*/g)
  t.equal(warnings?.length, 1, 'one warning')
  t.match(warnings?.[0], `"host":"127.0.0.1:${port}","publicHost":"localhost:${port}"`)
  t.match(
    warnings?.[0],
    `a sign-in came by the host 127.0.0.1:${port}, and PUBLIC_URL is ${bff.publicUrl}: set PUBLIC_URL to the address that users open, or let the reverse proxy keep the Host header`,
  )
})

t.test('the warning shows a host that no browser sends bounded and printable', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  await signInBy(portOf(bff), `a b\u00e9${'c'.repeat(500)}`)
  t.match(bff.log(), /came by the host a\?b\?\?c{195}, and/)
})

t.test('the host of PUBLIC_URL needs no redirect, and takes back the note of one', async (t) => {
  const { sandbox, bff } = await shared({ PUBLIC_URL: 'http://App.localhost' })
  for (const host of ['app.localhost', 'APP.localhost', 'app.localhost:80']) {
    const answer = await signInBy(portOf(bff), host, ['Cookie', 'sign-in-sent=1'])
    t.equal(new URL(field(answer, 'location')!).origin, sandbox.authUrl, host)
    t.match(answer.headers.get('set-cookie')?.join(' '), /sign-in-sent=;.*Domain=app\.localhost/, host)
  }
  t.notMatch(bff.log(), 'login.other_host')
})

t.test('a host of PUBLIC_URL that no Domain can name gets the same redirect', async (t) => {
  for (const host of ['[::1]:3000', 'my_app.localhost']) {
    const { bff } = await shared({ PUBLIC_URL: `http://${host}` })
    const answer = await signInBy(portOf(bff), 'other.test')
    t.equal(answer.status, 303, host)
    t.equal(field(answer, 'location'), `http://${host}/auth/login`)
    const note = `sign-in-sent=1; Max-Age=60; ${NOTE}`
    t.equal(field(answer, 'set-cookie'), note, 'so a reverse proxy that changes Host makes no loop')
  }
})

t.test('X-Forwarded-Host counts from a proxy of TRUST_PROXY only', async (t) => {
  for (const [trusted, isTrusted] of [
    ['127.0.0.1', true],
    ['10.0.0.1', false],
  ] as const) {
    const { sandbox, bff, port } = await shared({ TRUST_PROXY: trusted })
    const answer = await signInBy(port, 'internal:3000', ['X-Forwarded-Host', `localhost:${port}`])
    t.equal(new URL(field(answer, 'location')!).origin, isTrusted ? sandbox.authUrl : bff.publicUrl)
  }
})

t.test('the reason of a callback without its login cookie blames another host only', async (t) => {
  const { bff } = await shared({ PUBLIC_URL: 'http://app.localhost', TRUST_PROXY: '127.0.0.1' })
  const target = `/auth/callback/${'n'.repeat(43)}?code=a`
  const blamed = 'the request names another host than PUBLIC_URL (app.localhost)'
  const internal: Header = ['Host', 'internal:3000']
  const cases: [headers: Header[], blames: boolean][] = [
    [[['Host', 'APP.localhost']], false],
    [[['Host', 'app.localhost:80']], false],
    [[internal, ['X-Forwarded-Host', 'app.localhost']], false],
    [[internal], true],
  ]
  for (const [headers, blames] of cases) {
    const answer = await ask(portOf(bff), { target, noHost: true, headers })
    t.equal(answer.status, 400)
    const lines = logLines(bff.log(), 'request').filter(
      ({ reqId }) => reqId === field(answer, 'x-request-id'),
    )
    t.equal(lines.length, 1)
    t.equal(String(lines[0]!.reason).includes(blamed), blames, JSON.stringify(headers))
  }
})
