import t from 'tap'
import { cookieHeader, createBrowser } from '../helpers/browser.ts'
import { startLoad } from '../helpers/restart-load.ts'
import { startServer } from '../helpers/server-process.ts'
import { opsStatus, platformEnv, signIn, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'

// Most of the time is spent waiting.
t.jobs = 3

t.test('after a stop signal a server is not ready, and serves as before during the delay', async (t) => {
  const sandbox = await startSandbox(t)
  // Longer than any run of this test: what is seen here happens during the delay.
  const server = await startServer(t, { ...platformEnv(sandbox), SHUTDOWN_DELAY_SECONDS: '300' })
  const { url, opsUrl, publicUrl } = server
  const browser = createBrowser(publicUrl)
  await signIn(browser, sandbox)
  const cookie = cookieHeader(browser)
  const { host } = new URL(publicUrl)
  const headers = { cookie, host, 'sec-fetch-site': 'same-origin', 'x-csrf': '1', origin: publicUrl }
  const load = startLoad(t, () => ({ url, headers }))
  await load.more(20)
  server.send('SIGTERM')
  await until('not ready', async () => (await opsStatus(server)) === 503)
  t.match(await (await fetch(`${opsUrl}/readyz`)).text(), /the process is stopping/)
  const { headers: head } = await fetch(`${url}/auth/session`)
  t.equal(head.get('connection'), 'close', 'so that load balancers keep no connection')
  await load.more(60)
  t.strictSame([...(await load.end()).keys()], [200], 'each read and each update succeeded')
  t.equal(await opsStatus(server), 503, 'health is served until the end')
})

t.test('a server exits with 0 after the delay, from whose end SHUTDOWN_SECONDS counts', async (t) => {
  const server = await startServer(t, { SHUTDOWN_DELAY_SECONDS: '6', SHUTDOWN_SECONDS: '4' })
  server.send('SIGTERM')
  t.equal((await server.ended).code, 0, 'counted from the signal the time would be up: 1')
})
