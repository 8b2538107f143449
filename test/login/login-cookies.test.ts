import t from 'tap'
import { freePort } from '../helpers/ports.ts'
import { shared } from '../helpers/shared.ts'
import { decide, startBff, startSandbox } from '../helpers/system.ts'
import { elapsed } from '../helpers/wait.ts'
import { ask, field, portOf, speak } from '../http/wire.ts'
import { begin, comeBack } from './sign-ins.ts'

/** The default secret of every server in the tests. */
const SECRET = 'the-first-secret-of-the-tests-of-32-characters'

/** The attributes of a `Set-Cookie` line, sorted. */
function attributesOf(line: string): string[] {
  return line
    .split('; ')
    .slice(1)
    .map((attribute) => attribute.replace(/^Expires=.*/, 'Expires'))
    .sort()
}

t.test('the login cookie of an https site has the __Host-Http- prefix and at most 1 KiB', async (t) => {
  const port = await freePort()
  const bff = await startBff(t, await startSandbox(t), {
    PORT: String(port),
    PUBLIC_URL: `https://localhost:${port}`,
  })
  for (const returnTo of [
    `/${'a'.repeat(511)}`,
    `/?${"'".repeat(170)}`,
    `/?${'~'.repeat(510)}`,
    `/#${'/'.repeat(510)}`,
    `/?${'"'.repeat(170)}`,
    `/${'ä'.repeat(85)}`,
  ]) {
    const browser = bff.browser()
    const { setCookies } = await browser.navigate(`/auth/login?returnTo=${encodeURIComponent(returnTo)}`)
    const [line = '', ...more] = setCookies
    t.strictSame(more, [])
    t.match(line, /^__Host-Http-login-[A-Za-z0-9_-]{16}=[A-Za-z0-9_.-]+;/)
    t.strictSame(attributesOf(line), ['HttpOnly', 'Max-Age=3600', 'Path=/', 'SameSite=Lax', 'Secure'])
    t.ok(Buffer.byteLength(line) <= 1_024, `${Buffer.byteLength(line)} bytes for ${returnTo.slice(0, 5)}`)
  }
})

t.test('the login cookie of an http site has no prefix and is not Secure', async (t) => {
  const { bff } = await shared()
  const { setCookies } = await bff.browser().navigate('/auth/login')
  t.match(setCookies[0], /^login-[A-Za-z0-9_-]{16}=/)
  t.strictSame(attributesOf(setCookies[0]!), ['HttpOnly', 'Max-Age=3600', 'Path=/', 'SameSite=Lax'])
})

t.test('the login cookie does not reveal its content', async (t) => {
  const { bff } = await shared()
  const { setCookies, headers } = await bff.browser().navigate('/auth/login?returnTo=/hidden-place')
  const value = /=([^;]+)/.exec(setCookies[0]!)![1]!
  const { searchParams } = new URL(String(headers.location))
  for (const text of [value, Buffer.from(value, 'base64url').toString('latin1')]) {
    t.notMatch(text, /hidden-place/)
    t.notOk(text.includes(searchParams.get('state')!))
  }
  t.notOk(setCookies[0]!.includes(searchParams.get('state')!), 'not in its name either')
})

t.test('twenty sign-ins at once all end signed in, each at its own address', async (t) => {
  const { sandbox, bff } = await shared()
  const browser = bff.browser()
  const tabs = Array.from({ length: 20 }, (_, tab) => `/tab-${tab}`)
  const starts = await Promise.all(tabs.map((tab) => browser.navigate(`/auth/login?returnTo=${tab}`)))
  t.equal(browser.cookies.size, 20)
  const header = [...browser.cookies].map(([name, { value }]) => `${name}=${value}`).join('; ')
  t.ok(header.length < 8_000, `${header.length} bytes`)
  const backs = await Promise.all(starts.map(({ headers }) => decide(sandbox, String(headers.location))))
  const answers = await Promise.all(backs.map((back) => comeBack(browser, back)))
  t.strictSame(
    answers.map(({ status, headers }) => [status, headers.location]),
    tabs.map((tab) => [303, `${tab}#_`]),
  )
  t.equal((await browser.fetch('/flux/a')).status, 200)
  t.equal([...browser.cookies.keys()].filter((name) => name.startsWith('login-')).length, 0)
})

t.test('a browser keeps twenty sign-ins, and one more drops the oldest', async (t) => {
  const { sandbox, bff } = await shared()
  const browser = bff.browser()
  const starts: string[] = []
  const names: string[] = []
  for (let tab = 0; tab < 20; tab += 1) {
    const start = await browser.navigate(`/auth/login?returnTo=/tab-${tab}`)
    t.equal(start.setCookies.length, 1, 'nothing is dropped yet')
    names.push(start.setCookies[0]!.split('=', 1)[0]!)
    starts.push(String(start.headers.location))
    // The age is counted in milliseconds.
    await elapsed(2)
  }
  t.equal(browser.cookies.size, 20)
  const last = await browser.navigate('/auth/login?returnTo=/tab-20')
  starts.push(String(last.headers.location))
  t.equal(last.setCookies.length, 2)
  const dropped = last.setCookies.filter((line) => line.includes('Max-Age=0'))
  t.strictSame(
    dropped.map((line) => line.split('=', 1)[0]),
    [names[0]],
  )
  const attributes = attributesOf(dropped[0]!).filter((attribute) => !/^(Max-Age|Expires)/.test(attribute))
  t.strictSame(attributes, ['HttpOnly', 'Path=/', 'SameSite=Lax'])
  t.equal(browser.cookies.size, 20)
  const late = await comeBack(browser, await decide(sandbox, starts[0]!))
  t.equal(late.status, 400)
  for (const tab of [13, 20, 1]) {
    const answer = await comeBack(browser, await decide(sandbox, starts[tab]!))
    t.equal(answer.headers.location, `/tab-${tab}#_`, 'the others come back, in any order')
  }
})

t.test('the oldest sign-ins go where the cookies would pass 8 KB', async (t) => {
  const { sandbox, bff } = await shared()
  const browser = bff.browser()
  const sizeOf = () => [...browser.cookies].map(([name, { value }]) => `${name}=${value}`).join('; ').length
  browser.cookies.set('of-the-page', { value: 'x'.repeat(3_000), strict: false })
  const begin = async (name: string) => {
    await elapsed(2)
    return String((await browser.navigate(`/auth/login?returnTo=/${name.padEnd(500, '-')}`)).headers.location)
  }
  const starts: string[] = []
  for (let tab = 0; tab < 12; tab += 1) {
    starts.push(await begin(String(tab)))
    t.ok(sizeOf() <= 8_000, `${sizeOf()} bytes`)
  }
  t.ok(sizeOf() > 7_000, 'as many as fit')
  t.equal((await comeBack(browser, await decide(sandbox, starts[0]!))).status, 400, 'the oldest is gone')
  t.equal((await comeBack(browser, await decide(sandbox, starts[11]!))).status, 303, 'the newest is kept')
  browser.cookies.set('of-the-page', { value: 'x'.repeat(9_000), strict: false })
  t.equal(
    (await comeBack(browser, await decide(sandbox, await begin('a')))).status,
    303,
    'a new one always is',
  )
})

t.test('a login cookie that another site can set beside the prefix begins no sign-in', async (t) => {
  const { sandbox, bff, port } = await shared()
  const browser = bff.browser()
  const start = await browser.navigate('/auth/login')
  const [cookie = ''] = start.setCookies[0]!.split(';')
  const { pathname, search } = new URL(await decide(sandbox, String(start.headers.location)))
  // Node reads a header byte as one character, and JavaScript trims A0 (no-break space).
  for (const [space, status] of [
    ['\xa0', 400],
    ['\xa0 ', 400],
    [' \xa0', 400],
    [' \t', 400],
    ['  ', 303],
  ] as const) {
    const lines = [`Host: localhost:${port}`, `Cookie: a=1;${space}${cookie}`, 'Connection: close']
    const text = `GET ${pathname}${search} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`
    const [response] = (await speak(port, Buffer.from(text, 'latin1'))).answers
    t.equal(response?.status, status, JSON.stringify(space))
  }
})

t.test('foreign login cookies are cleared and prevent no sign-in', async (t) => {
  const { sandbox, bff } = await shared()
  const browser = bff.browser()
  const garbage = new Map([
    ['login-x', 'rubbish'],
    [`login-${'a'.repeat(16)}`, `AAAAAAAA.${'A'.repeat(60)}`],
    ['login-0000000000000000', ''],
  ])
  for (const [name, value] of [...garbage, ['login-', '%%%'] as const])
    browser.cookies.set(name, { value, strict: false })
  const back = await comeBack(browser, await begin(browser, sandbox, { query: '?returnTo=/app' }))
  t.equal(back.headers.location, '/app#_')
  for (const name of garbage.keys()) t.notOk(browser.cookies.has(name), `${name} is dropped`)

  for (let i = 0; i < 300; i += 1) browser.cookies.set(`login-${i}`, { value: 'x', strict: false })
  const { setCookies } = await browser.navigate('/auth/login')
  t.ok(setCookies.join().length < 4_096, 'hundreds are cleared in several responses')
  for (let i = 0; i < 40; i += 1) await browser.navigate('/auth/login')
  t.equal([...browser.cookies.keys()].filter((name) => /^login-./.test(name)).length, 20)
})

t.test('a login cookie of another sign-in, of another name, or altered does not count', async (t) => {
  const { sandbox, bff, port } = await shared()
  const browser = bff.browser()
  const [one, two] = [await browser.navigate('/auth/login'), await browser.navigate('/auth/login')]
  const [nameOne, nameTwo] = [one, two].map(({ setCookies }) => setCookies[0]!.split('=', 1)[0]!)
  const valueTwo = browser.cookies.get(nameTwo!)!.value
  const back = new URL(await decide(sandbox, String(one.headers.location)))
  const own = browser.cookies.get(nameOne!)!.value
  const flipped = own.slice(0, -3) + (own.at(-3) === 'A' ? 'B' : 'A') + own.slice(-2)
  for (const cookie of [
    `${nameOne}=${valueTwo}`,
    `${nameTwo}=${own}`,
    `${nameOne}=${flipped}`,
    `${nameOne}=`,
    `${nameOne}`,
    `${nameOne}=${own.split('.')[1]}`,
    `x${nameOne}=${own}`,
  ]) {
    const question = { target: back.pathname + back.search, headers: [['Cookie', cookie]] as const }
    t.equal((await ask(port, question)).status, 400, cookie.slice(0, 30))
  }
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0)
  const good = await comeBack(browser, back.href)
  t.equal(good.status, 303, 'and the right one still works after all that')
})

t.test('a sign-in under way survives a change of secrets', async (t) => {
  const { sandbox, bff: before } = await shared()
  const start = await before.browser().navigate('/auth/login?returnTo=/app')
  const after = await startBff(t, sandbox, {
    PUBLIC_URL: before.publicUrl,
    SESSION_SECRET: `another-secret-that-is-32-characters-long,${SECRET}`,
  })
  const back = new URL(await decide(sandbox, String(start.headers.location)))
  const answer = await ask(portOf(after), {
    target: back.pathname + back.search,
    headers: [['Cookie', start.setCookies[0]!.split(';', 1)[0]!]],
  })
  t.equal(field(answer, 'location'), '/app#_')
})

t.test('of the cookies of one sign-in a bounded number is opened', async (t) => {
  const { sandbox, bff, port } = await shared()
  const start = await bff.browser().navigate('/auth/login')
  const [own = ''] = start.setCookies[0]!.split(';', 1)
  const { pathname, search } = new URL(await decide(sandbox, String(start.headers.location)))
  const broken = `${own.slice(0, -8)}AAAAAAAA`
  for (const [before, status] of [
    [24, 400],
    [23, 303],
  ] as const) {
    const cookie = [...Array<string>(before).fill(broken), own].join('; ')
    const answer = await ask(port, { target: pathname + search, headers: [['Cookie', cookie]] })
    t.equal(answer.status, status, `behind ${before}`)
  }
})
