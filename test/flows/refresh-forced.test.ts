import t from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'

t.test(
  'a refused token during an outage of the authorization server is replaced within five seconds of its return',
  async (t) => {
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox, { TOKEN_TIMEOUT_MS: '700' })
    const browser = bff.browser()
    await signIn(browser, sandbox)
    t.equal((await browser.fetch('/flux/temperature')).status, 200)

    sandbox.expireAccessTokens()
    sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 503 } })
    const down = await browser.fetch('/flux/temperature')
    t.equal(down.status, 503, down.text)
    t.equal(down.json().code, 'authorization_server_unavailable')
    t.match(down.headers['retry-after'], /^\d+$/)
    t.equal((await browser.fetch('/auth/session')).json().authenticated, true, 'the session stays')

    sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })
    const backAt = Date.now()
    let status = 0
    while (status !== 200 && Date.now() - backAt < 5_000) {
      status = (await browser.fetch('/flux/temperature')).status
      if (status !== 200) {
        t.equal(status, 503, 'until then it is unavailable, not refused')
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
    }
    t.equal(status, 200)
    t.equal(sandbox.counters().reuseDetected, 0)
  },
)
