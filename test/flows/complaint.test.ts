import t from 'tap'
import { logLines } from '../helpers/log-lines.ts'
import { decide, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { sendPassword } from '../login/sign-ins.ts'

t.test('each event of a browser carries its address, the request id and the session', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, {
    OAUTH_FLOWS: 'code,password',
    LOGIN_RATE_PER_MINUTE: '2',
    TRUST_PROXY: '127.0.0.1',
  })
  const browser = bff.browser()
  let requests = 0
  /** Headers of a trusted proxy for a new client and request. */
  const from = () => {
    requests += 1
    return {
      'x-forwarded-for': `203.0.113.${requests}`,
      'x-request-id': `request-${requests}`,
    }
  }
  /** What the log tells of the newest request by these events. */
  const logged = (...events: string[]): object[] =>
    logLines(bff.log())
      .filter(({ event, reqId }) => reqId === `request-${requests}` && events.includes(String(event)))
      .map(({ event, address, recordKey, reason }) => ({ event, address, recordKey, reason }))
  /** That its one line of this event names its client and this session. */
  const names = (event: string, recordKey: unknown, reason?: string) =>
    t.strictSame(logged(event), [{ event, address: `203.0.113.${requests}`, recordKey, reason }], event)
  const byPassword = (username: string, password: string) =>
    sendPassword(browser, { username, password }, { headers: from() })

  t.equal((await byPassword('nobody', 'wrong')).status, 401)
  names('login.failed', undefined, 'invalid_grant')
  const first = (await byPassword('alice', 'wonderland')).json().sessionId
  t.match(first, /^[0-9a-f]{12}$/)
  names('login.succeeded', first)
  const second = (await byPassword('alice', 'wonderland')).json().sessionId
  names('login.succeeded', second)
  names('session.ended', first, 'replaced')
  await byPassword('nobody', 'wrong')
  names('login.failed', second, 'invalid_grant')

  const start = await browser.navigate('/auth/login', { headers: from() })
  const refused = await decide(sandbox, String(start.headers.location), 'refuse')
  await browser.navigate(refused, { headers: from(), from: 'cross-site' })
  names('login.refused', second)

  const headers = from()
  for (let tries = 0; tries < 3; tries += 1) await browser.navigate('/auth/login', { headers })
  await until('the line', () => logged('rate_limit.exceeded').length === 1)
  names('rate_limit.exceeded', second)

  await browser.fetch('/auth/logout', { method: 'POST', headers: from() })
  names('logout.succeeded', second)
  names('session.ended', second, 'logout')

  sandbox.faults.set({ omitRefreshToken: true })
  const third = (await byPassword('alice', 'wonderland')).json().sessionId
  sandbox.faults.set({ resource: { mode: 'invalid-token', times: 1 } })
  t.equal((await browser.fetch('/flux/a', { headers: from() })).status, 401)
  names('session.ended', third, 'refused')
})
