import t, { type Test } from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { startRedis } from '../helpers/redis.ts'
import { elapsed, until } from '../helpers/replicas.ts'
import { call, READ, startLoad } from '../helpers/restart-load.ts'
import { type Env, type ServerProcess, startServer } from '../helpers/server-process.ts'
import { CLIENT, signIn, startSandbox } from '../helpers/system.ts'

const DELAY_MS = 2_000

async function startSystem(t: Test, env: Env) {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const first = await startServer(t, {
    SESSION_STORE: 'redis',
    REDIS_URL: redis.url,
    AUTH_URL: sandbox.authUrl,
    BASE_URL: sandbox.baseUrl,
    CLIENT_ID: CLIENT.clientId,
    CLIENT_SECRET: CLIENT.clientSecret,
    WAC: 'DEMO',
    SHUTDOWN_DELAY_SECONDS: String(DELAY_MS / 1_000),
    SHUTDOWN_SECONDS: '10',
    ...env,
  })
  await until('ready', async () => (await readyz(first)).status === 200)
  const browser = createBrowser(first.publicUrl)
  await signIn(browser, sandbox)
  const cookie = [...browser.cookies].map(([name, { value }]) => `${name}=${value}`).join('; ')
  const { host } = new URL(first.publicUrl)
  const headers = { cookie, host, 'sec-fetch-site': 'same-origin', 'x-csrf': '1', origin: first.publicUrl }
  return { first, headers }
}

async function readyz({ opsUrl }: ServerProcess): Promise<{ status: number; text: string }> {
  const answer = await fetch(`${opsUrl}/readyz`)
  return { status: answer.status, text: await answer.text() }
}

for (const workers of ['1', '2']) {
  t.test(
    `after a stop signal a server is not ready at once and serves on for SHUTDOWN_DELAY_SECONDS (WORKERS=${workers})`,
    async (t) => {
      const { first, headers } = await startSystem(t, { WORKERS: workers })
      const load = startLoad(t, () => ({ url: first.url, headers }))
      await elapsed(200)
      const begin = performance.now()
      first.send('SIGTERM')
      await until('not ready', async () => (await readyz(first)).status === 503, DELAY_MS / 3)
      t.match((await readyz(first)).text, /the process is stopping/)
      const { headers: head } = await fetch(`${first.url}/auth/session`)
      t.equal(head.get('connection'), 'close', 'so that load balancers keep no connection')
      await elapsed(DELAY_MS * 0.8 - (performance.now() - begin))
      const counts = await load.end()
      t.strictSame([...counts.keys()], [200], 'each read and each update succeeded')
      t.ok((counts.get(200) ?? 0) > 10, `under load: ${counts.get(200)}`)
      t.equal((await readyz(first)).status, 503, 'health is served until the end')
      t.equal((await first.ended).code, 0)
      const ms = performance.now() - begin
      t.ok(ms >= DELAY_MS && ms < DELAY_MS + 5_000, `ended after ${ms} ms`)
    },
  )
}

t.test('SHUTDOWN_SECONDS counts from the end of the delay', async (t) => {
  const { first, headers } = await startSystem(t, { SHUTDOWN_SECONDS: '1' })
  const begin = performance.now()
  first.send('SIGTERM')
  await elapsed(DELAY_MS - 300)
  t.equal(await call({ url: first.url, headers }, READ), 200)
  t.equal((await first.ended).code, 0)
  t.ok(performance.now() - begin >= DELAY_MS)
})
