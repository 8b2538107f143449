import t, { type Test } from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { startRedis } from '../helpers/redis.ts'
import { call, READ, startLoad } from '../helpers/restart-load.ts'
import { type Env, type ServerProcess, startServer } from '../helpers/server-process.ts'
import { platformEnv, signIn, startSandbox } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'

const DELAY_MS = 2_000
/** Longer, so that a slow machine has enough calls in it too. */
const LOADED_DELAY_MS = 5_000
/** Of the cores only a part: other tests run beside this one. */
const PACE = { clients: 6, pauseMs: 10 }

// Most of the time is spent waiting.
t.jobs = 2

async function startSystem(t: Test, env: Env) {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const settings = {
    SESSION_STORE: 'redis',
    REDIS_URL: redis.url,
    ...platformEnv(sandbox),
    SHUTDOWN_DELAY_SECONDS: String(DELAY_MS / 1_000),
    SHUTDOWN_SECONDS: '10',
    ...env,
  }
  const start = async (more: Env = {}): Promise<ServerProcess> => {
    const server = await startServer(t, { ...settings, ...more })
    await until('ready', async () => (await readyz(server)).status === 200)
    return server
  }
  const first = await start()
  const browser = createBrowser(first.publicUrl)
  await signIn(browser, sandbox)
  const cookie = [...browser.cookies].map(([name, { value }]) => `${name}=${value}`).join('; ')
  const { host } = new URL(first.publicUrl)
  const headers = { cookie, host, 'sec-fetch-site': 'same-origin', 'x-csrf': '1', origin: first.publicUrl }
  return { first, start, headers }
}

async function readyz({ opsUrl }: ServerProcess): Promise<{ status: number; text: string }> {
  const answer = await fetch(`${opsUrl}/readyz`)
  return { status: answer.status, text: await answer.text() }
}

for (const workers of ['1', '2']) {
  t.test(
    `after a stop signal a server is not ready at once and serves on for SHUTDOWN_DELAY_SECONDS (WORKERS=${workers})`,
    async (t) => {
      const { first, headers } = await startSystem(t, {
        WORKERS: workers,
        SHUTDOWN_DELAY_SECONDS: String(LOADED_DELAY_MS / 1_000),
      })
      const load = startLoad(t, () => ({ url: first.url, headers }), PACE)
      await elapsed(200)
      const begin = performance.now()
      first.send('SIGTERM')
      await until('not ready', async () => (await readyz(first)).status === 503, 2_000)
      t.match((await readyz(first)).text, /the process is stopping/)
      const { headers: head } = await fetch(`${first.url}/auth/session`)
      t.equal(head.get('connection'), 'close', 'so that load balancers keep no connection')
      await elapsed(LOADED_DELAY_MS * 0.8 - (performance.now() - begin))
      const counts = await load.end()
      t.strictSame([...counts.keys()], [200], 'each read and each update succeeded')
      t.ok((counts.get(200) ?? 0) > 100, `under load: ${counts.get(200)}`)
      t.equal((await readyz(first)).status, 503, 'health is served until the end')
      t.equal((await first.ended).code, 0)
      const ms = performance.now() - begin
      t.ok(ms >= LOADED_DELAY_MS && ms < LOADED_DELAY_MS + 5_000, `ended after ${ms} ms`)
    },
  )
}

t.test('no request fails while replicas behind a load balancer are restarted one by one', async (t) => {
  const { first, start, headers } = await startSystem(t, {})
  const { publicUrl } = first
  const replicas = [first, await start({ PUBLIC_URL: publicUrl })]
  let ready = replicas
  let turn = 0
  // As a load balancer does it: what failed its last check gets no requests.
  const check = setInterval(async () => {
    const checked = [...replicas]
    const statuses = await Promise.all(checked.map((one) => readyz(one).catch(() => ({ status: 0 }))))
    ready = checked.filter((_, at) => statuses[at]!.status === 200)
  }, 100)
  t.teardown(() => clearInterval(check))
  const load = startLoad(t, () => ({ url: ready[turn++ % ready.length]!.url, headers }), PACE)
  for (const at of [0, 1]) {
    t.equal(await replicas[at]!.stop('SIGTERM'), 0)
    replicas[at] = await start({ PUBLIC_URL: publicUrl })
    await elapsed(250)
  }
  const counts = await load.end()
  t.strictSame([...counts.keys()], [200], 'nobody is signed out, and each read and each update succeeded')
  t.ok((counts.get(200) ?? 0) > 300, `under load: ${counts.get(200)}`)
})

t.test('SHUTDOWN_SECONDS counts from the end of the delay', async (t) => {
  const { first, headers } = await startSystem(t, { SHUTDOWN_DELAY_SECONDS: '3', SHUTDOWN_SECONDS: '1' })
  const begin = performance.now()
  first.send('SIGTERM')
  await elapsed(1_500)
  t.equal(await call({ url: first.url, headers }, READ), 200)
  t.equal((await first.ended).code, 0)
  t.ok(performance.now() - begin >= 3_000)
})
