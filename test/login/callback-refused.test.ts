import t, { type Test } from 'tap'
import type { Answer } from '../helpers/browser.ts'
import { offsetWallClock } from '../helpers/clock.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { type Bff, decide, startBff, untilReady } from '../helpers/system.ts'
import { ask, field, portOf } from '../http/wire.ts'
import { begin, comeBack, signedInOverRedis } from './sign-ins.ts'

/** A page of the server with no text of the request on it. */
function isProblemPage(t: Test, answer: Answer, status: number, what: string): void {
  t.equal(answer.status, status, what)
  t.match(answer.headers['content-type'], /^text\/html/, what)
  t.match(answer.headers['content-security-policy'], /default-src 'none'/, what)
  t.equal(answer.headers['cache-control'], 'no-store', what)
  t.notOk(answer.headers.location, what)
  t.notMatch(answer.text, /<script|evil|long-story/i, what)
}

t.test('a callback that matches no sign-in of this browser gets 400 and changes nothing', async (t) => {
  const { sandbox, browser } = await signedIn()
  const start = await browser.navigate('/auth/login')
  const nonce = new URL(String(start.headers.location)).searchParams.get('state')!
  const cookies = new Map(browser.cookies)
  for (const [path, what] of [
    [`${nonce}?code=a&code=b`, 'two codes'],
    [`${nonce}?code=a&code=a`, 'the same code twice'],
    [`${nonce}?code=a&error=access_denied`, 'a code and an error'],
    [`${nonce}`, 'neither'],
    [`${nonce}?code=`, 'an empty code'],
    [`${nonce}?error=`, 'an empty error'],
    [`${nonce}?error=a&error=b`, 'two errors'],
    [`${nonce}?code=a&state=${nonce}&state=${nonce}`, 'two states'],
    [`${nonce}?code=a&session_state=b&session_state=b`, 'a parameter of its own twice'],
    [`${nonce}?error=access_denied&error_uri=a&error_uri=b`, 'two error addresses'],
    [`${nonce}?code=a&iss=https://a.test&iss=https://a.test`, 'two issuers'],
    [`${nonce}?code=a&state=evil`, 'another state'],
    [`${nonce}?code=a&state=`, 'an empty state'],
    [`${nonce}?error=access_denied&state=evil`, 'another state with an error'],
    [`${nonce}x?code=a`, 'a longer nonce'],
    [`${nonce.slice(1)}?code=a`, 'a shorter nonce'],
    ['evil?code=a', 'no nonce'],
    ['%3Cscript%3E?code=a', 'a script for a nonce'],
    [`${nonce}?code=a&error_description=long-story&error=x`, 'a long story'],
  ] as const) {
    const answer = await comeBack(browser, `/auth/callback/${path}`)
    isProblemPage(t, answer, 400, what)
    t.strictSame(answer.setCookies, [], what)
  }
  for (const [path, what] of [
    [`${'A'.repeat(43)}?code=a`, 'a nonce of nobody'],
    [`${nonce.toLowerCase()}?code=a`, 'a nonce in lower case'],
    [`${'A'.repeat(43)}?error=access_denied`, 'an error for nobody'],
  ] as const) {
    const answer = await comeBack(browser, `/auth/callback/${path}`)
    t.strictSame([answer.status, answer.headers.location, answer.setCookies], [303, '/', []], what)
  }
  const query = 'code=a&a%0A=b&a%0A=b'
  const page = await comeBack(browser, `/auth/callback/${nonce}?${query}`)
  t.match(page.text, 'Parameter 3 of the query is repeated.')
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0, 'no token request')
  t.strictSame(browser.cookies, cookies)
  t.equal((await browser.fetch('/flux/a')).status, 200, 'the session before lives on')
})

t.test('a sign-in cannot be completed in another browser', async (t) => {
  const { sandbox, bff } = await shared()
  const [attacker, victim] = [bff.browser(), bff.browser()]
  const back = await begin(attacker, sandbox)
  const page = await comeBack(victim, back)
  isProblemPage(t, page, 400, 'without a login cookie')
  t.match(page.text, '<a href="/auth/login">Sign in</a>')
  await victim.navigate('/auth/login')
  isProblemPage(t, await comeBack(victim, back), 400, 'with one of its own')
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0)
  t.notOk(victim.cookies.has('session'))
})

t.test('a sign-in expires after an hour', async (t) => {
  const setClock = offsetWallClock(t)
  const { sandbox, bff } = await shared()
  const begunAgo = async (ms: number): Promise<number> => {
    const browser = bff.browser()
    setClock(-ms)
    const start = await browser.navigate('/auth/login')
    setClock(0)
    const back = await decide(sandbox, String(start.headers.location))
    return (await comeBack(browser, back)).status
  }
  t.equal(await begunAgo(3_600_000), 400)
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0)
  t.equal(await begunAgo(3_590_000), 303)
})

t.test('a callback is redeemed once; repeated, it leads a signed-in browser home', async (t) => {
  const { sandbox, bff } = await shared()
  const browser = bff.browser()
  const back = await begin(browser, sandbox, { query: '?returnTo=/app' })
  const loginCookie = [...browser.cookies]
  t.equal((await comeBack(browser, back)).headers.location, '/app#_')
  const session = browser.cookies.get('session')!.value

  for (const from of ['cross-site', 'same-site'] as const) {
    const again = await browser.navigate(back, { from })
    t.equal(again.status, 303, `reloaded, ${from}`)
    t.equal(again.headers.location, '/')
  }
  const restored = new URL(back).pathname
  for (const query of ['', '?x']) {
    const { status, headers } = await browser.navigate(restored + query, { from: 'cross-site' })
    t.match([status, headers.location], [303, '/'], `a restored tab, with ${query}`)
  }
  for (const query of ['?code=a&state=x', '?code=a&error=b', '?code=a&code=b'])
    isProblemPage(t, await browser.navigate(restored + query), 400, query)
  for (const [name, cookie] of loginCookie) browser.cookies.set(name, cookie)
  const withCookie = await comeBack(browser, back)
  t.equal(withCookie.headers.location, '/', 'also while the login cookie is still there')
  t.equal(browser.cookies.get('session')!.value, session, 'it is still the same session')
  t.equal((await browser.fetch('/flux/a')).status, 200)

  await browser.fetch('/auth/logout', { method: 'POST' })
  isProblemPage(t, await comeBack(browser, back), 400, 'signed out')
  isProblemPage(t, await comeBack(bff.browser(), back), 400, 'another browser')
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 1, 'one token request')
})

t.test('of two replicas that get the same callback at once, one redeems it', async (t) => {
  const { sandbox, redis, bff: one } = await signedInOverRedis(t)
  const two = await startBff(t, sandbox, { REDIS_URL: redis.url, PUBLIC_URL: one.publicUrl })
  await untilReady(two)
  const start = await one.browser().navigate('/auth/login?returnTo=/app')
  const back = new URL(await decide(sandbox, String(start.headers.location)))
  const cookie = start.setCookies[0]!.split(';', 1)[0]!
  const callback = (bff: Bff) =>
    ask(portOf(bff), { target: back.pathname + back.search, headers: [['Cookie', cookie]] })
  const answers = await Promise.all([one, two, one, two].map(callback))
  t.strictSame(answers.map(({ status }) => status).sort(), [303, 400, 400, 400])
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 1)
  const winner = answers.find(({ status }) => status === 303)!
  t.equal(field(winner, 'location'), '/app#_')
  for (const loser of answers.filter(({ status }) => status === 400)) {
    t.notMatch(field(loser, 'set-cookie') ?? '', /session|record/)
  }
})
