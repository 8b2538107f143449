import t from 'tap'
import { counted } from '../flows/load.ts'
import { type Browser, isProblem } from '../helpers/browser.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { ALICE, arrivalAt, begin, comeBack, postFragment, sendPassword } from './sign-ins.ts'

const FLOWS = 'code,token,password'
const REDEMPTIONS_AT_ONCE = 32

/** What the proxy of a test says of the browser's address. */
const at = (address: string) => ({ 'x-forwarded-for': address })

t.test('callbacks are limited by address, with a count of their own', async (t) => {
  const sandbox = await startSandbox(t)
  const env = { OAUTH_FLOWS: FLOWS, LOGIN_RATE_PER_MINUTE: '2', TRUST_PROXY: '127.0.0.1' }
  const bff = await startBff(t, sandbox, env)
  const begun = async (flow: 'code' | 'token', headers: Record<string, string>) => {
    const browser = bff.browser()
    const query = `?returnTo=%2Fapp&flow=${flow}`
    return { browser, back: await begin(browser, sandbox, { query, headers }) }
  }
  const returns = ({ browser, back }: { browser: Browser; back: string }, headers: Record<string, string>) =>
    comeBack(browser, back, headers)

  const same = [await begun('code', at('192.0.2.1')), await begun('code', at('192.0.2.1'))]
  for (const each of same)
    t.equal((await returns(each, at('192.0.2.1'))).status, 303, 'a sign-in does not count twice')

  const office = at('192.0.2.2')
  const [first, second] = [await begun('code', at('192.0.2.3')), await begun('code', at('192.0.2.3'))]
  const third = await begun('code', at('192.0.2.4'))
  const fragment = await begun('token', at('192.0.2.4'))
  for (let i = 0; i < 5; i += 1) {
    const answer = await returns({ browser: bff.browser(), back: third.back }, office)
    t.equal(answer.status, 400, 'without a login cookie it costs no token request and does not count')
  }
  t.equal((await returns(first, office)).status, 303)
  t.equal((await returns(second, office)).status, 303)

  const { length: requests } = sandbox.journal.entries({ endpoint: 'token' })
  const limited = await returns(third, office)
  t.equal(limited.status, 429)
  t.match(limited.headers['retry-after'], /^\d+$/)
  t.match(limited.text, '<p>Too many sign-ins. Wait a minute, then try again.</p>')
  t.match(limited.text, '<a href="/auth/login?returnTo=%2Fapp">Try again</a>')
  t.strictSame(limited.setCookies, [], 'the login cookie stays')
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, requests, 'no token request')
  t.match(bff.log(), 'too many sign-ins from one address: if they are those of many users')
  t.equal(await counted([bff], 'bff_sign_in_failures_total{reason="rate_limited"}'), 1)

  const { browser, back } = fragment
  const post = (headers: Record<string, string>) => postFragment(browser, arrivalAt(back), headers)
  const refused = await post(office)
  t.equal(refused.status, 429, 'the POST of the token flow counts as a callback')
  t.match(refused.json(), { code: 'rate_limited', loginUrl: '/auth/login?returnTo=%2Fapp&flow=token' })
  t.equal((await post(at('192.0.2.5'))).status, 200, 'another address')

  t.equal((await returns(third, at('192.0.2.5'))).headers.location, '/app#_', 'the same address works later')
})

t.test(`at most ${REDEMPTIONS_AT_ONCE} sign-ins redeem at once, and one more can be repeated`, async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { OAUTH_FLOWS: FLOWS, TOKEN_TIMEOUT_MS: '60000' })
  const user = bff.browser()
  await signIn(user, sandbox)
  const arriving = await Promise.all(
    Array.from({ length: REDEMPTIONS_AT_ONCE + 1 }, async () => {
      const browser = bff.browser()
      const back = await begin(browser, sandbox, { query: '?returnTo=%2Fapp' })
      return () => comeBack(browser, back)
    }),
  )
  const last = arriving.pop()!
  const gate = sandbox.hold('token', { only: 'authorization_code' })
  t.teardown(() => gate.release())
  const held = arriving.map((arrive) => arrive())
  await gate.arrivals(REDEMPTIONS_AT_ONCE)

  const busy = await last()
  t.equal(busy.status, 503)
  t.match(busy.headers['retry-after'], /^[1-9]\d*$/)
  t.match(busy.text, '<p>Too many sign-ins are under way. Load this page again in a moment.</p>')
  t.strictSame(busy.setCookies, [], 'the login cookie stays')
  const password = await sendPassword(user, ALICE)
  isProblem(t, password, 503, 'authorization_server_unavailable', 'of any flow')

  sandbox.faults.set({ resource: { mode: 'invalid-token', times: 1 } })
  t.equal((await user.fetch('/flux/a')).status, 200, 'a refresh is not held up')
  t.equal(gate.waiting(), REDEMPTIONS_AT_ONCE)

  gate.release()
  for (const answer of await Promise.all(held)) t.equal(answer.status, 303)
  t.equal((await last()).headers.location, '/app#_', 'the same address works later')
})
