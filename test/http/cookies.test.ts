import t from 'tap'
import { createSessionCookies } from '../../src/http/cookies.ts'
import { createKeyring } from '../../src/keyring.ts'
import { Secret } from '../../src/secret.ts'
import { freePort } from '../helpers/ports.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'

const SETS = [
  {
    scheme: 'https',
    names: ['__Host-Http-record', '__Host-Http-session'],
    session: ['HttpOnly', 'Path=/', 'SameSite=Strict', 'Secure'],
    record: ['HttpOnly', 'Path=/', 'SameSite=Lax', 'Secure'],
  },
  {
    scheme: 'http',
    names: ['record', 'session'],
    session: ['HttpOnly', 'Path=/', 'SameSite=Strict'],
    record: ['HttpOnly', 'Path=/', 'SameSite=Lax'],
  },
]

for (const { scheme, names, session, record } of SETS) {
  t.test(`the cookies of an ${scheme} site have its attributes over a plain connection`, async (t) => {
    const sandbox = await startSandbox(t)
    const port = String(await freePort())
    const bff = await startBff(t, sandbox, { PORT: port, PUBLIC_URL: `${scheme}://localhost:${port}` })
    const browser = bff.browser()
    const { setCookies, headers } = await signIn(browser, sandbox)
    const lines = setCookies.filter((line) => !line.includes('login-'))
    t.strictSame(lines.map((line) => line.split('=', 1)[0]).sort(), names)
    for (const line of lines) {
      const [pair, ...attributes] = line.split('; ')
      const expected = pair!.includes('session=') ? session : record
      t.strictSame(attributes.sort(), expected, `${pair!.split('=', 1)[0]}: no Domain, no expiry`)
      if (expected === session) t.ok(Buffer.byteLength(pair!) < 128, `${Buffer.byteLength(pair!)} bytes`)
    }
    t.equal('strict-transport-security' in headers, scheme === 'https')
    t.match((await browser.fetch('/auth/session')).json(), { authenticated: true })
    t.equal((await browser.fetch('/flux/a')).status, 200)
  })
}

t.test('a server with two signed-in users', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const [victim, other] = [bff.browser(), bff.browser()]
  await signIn(victim, sandbox)
  await signIn(other, sandbox)
  const record = victim.cookies.get('record')!.value
  const session = victim.cookies.get('session')!.value

  await t.test('only a sign-in, a sign-out and a change of secrets set a cookie', async (t) => {
    for (const target of ['/flux/a', '/flux/..', '/nothing', '/auth/session', '/openapi.json', '/site/1'])
      t.strictSame((await victim.fetch(target)).setCookies, [], target)
  })

  await t.test('the record cookie reveals neither the session id nor the record key', async (t) => {
    t.notOk(record.includes(session.slice(0, 43)))
    t.notMatch(record, /[0-9a-f]{64}/)
    t.not(record.slice(0, 60), other.cookies.get('record')!.value.slice(0, 60))
  })

  await t.test('the record cookie alone is no session', async (t) => {
    other.cookies.delete('session')
    t.match((await other.fetch('/auth/session')).json(), { authenticated: false })
    t.equal((await other.fetch('/flux/a')).status, 401)
  })

  await t.test('a sign-in with a foreign or altered record cookie ends no session', async (t) => {
    const altered = [record.slice(0, -4), `x${record}`, record.toLowerCase()]
    for (const planted of [session, session.slice(0, 43), ...altered, '']) {
      other.cookies.set('record', { value: planted, strict: false })
      await signIn(other, sandbox)
      t.equal((await victim.fetch('/flux/a?values=1')).status, 200, planted.slice(0, 12))
    }
  })
})

t.test('the cost of reading a Cookie header is proportional to its length, blanks included', async (t) => {
  const { loginCookiesIn, wasSentToPublicHost, read } = createSessionCookies({
    keyring: createKeyring([new Secret('a-secret-of-this-test-of-32-characters')]),
    publicUrl: 'http://localhost:3000',
    secure: false,
  })
  const header = (blanks: number) => `x${' '.repeat(blanks)}y=1`
  const cost = (header: string, times: number): number => {
    const before = process.cpuUsage()
    for (let time = 0; time < times; time += 1)
      for (const reads of [(text: string) => [...loginCookiesIn(text)], wasSentToPublicHost, read])
        reads(header)
    const { user, system } = process.cpuUsage(before)
    return user + system + 1
  }
  const times = 32
  const rounds = Array.from({ length: 5 }, () => ({
    many: cost(header(500), 8 * times),
    one: cost(header(500 * times), 8),
  }))
  const many = Math.min(...rounds.map((round) => round.many))
  const one = Math.min(...rounds.map((round) => round.one))
  t.ok(one < 8 * many, `${one} for long headers, ${many} for ${times} times as many that are as much shorter`)
})
