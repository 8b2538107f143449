import t, { type Test } from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { startRedis } from '../helpers/redis.ts'
import { startLoad } from '../helpers/restart-load.ts'
import { type Env, type ServerProcess, startServer } from '../helpers/server-process.ts'
import { platformEnv, signIn, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'

/** Of the cores only a part: other tests run beside this one. */
const PACE = { clients: 6, pauseMs: 40 }

// Most of the time is spent waiting.
t.jobs = 2

async function startSystem(t: Test, env: Env) {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const settings = {
    SESSION_STORE: 'redis',
    REDIS_URL: redis.url,
    ...platformEnv(sandbox),
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

t.test(
  'after a stop signal a server is not ready at once, and serves as before during the delay',
  async (t) => {
    // Longer than any run of this test: what is seen here happens during the delay.
    const { first, headers } = await startSystem(t, { SHUTDOWN_DELAY_SECONDS: '300' })
    const load = startLoad(t, () => ({ url: first.url, headers }), PACE)
    await load.more(20)
    first.send('SIGTERM')
    await until('not ready', async () => (await readyz(first)).status === 503)
    t.match((await readyz(first)).text, /the process is stopping/)
    const { headers: head } = await fetch(`${first.url}/auth/session`)
    t.equal(head.get('connection'), 'close', 'so that load balancers keep no connection')
    await load.more(100)
    t.strictSame([...(await load.end()).keys()], [200], 'each read and each update succeeded')
    t.equal((await readyz(first)).status, 503, 'health is served until the end')
  },
)

t.test('no request fails while replicas behind a load balancer are restarted one by one', async (t) => {
  const { first, start, headers } = await startSystem(t, { SHUTDOWN_DELAY_SECONDS: '5' })
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
    await load.more(50)
    const stopped = replicas[at]!
    stopped.send('SIGTERM')
    t.equal((await stopped.ended).code, 0)
    const started = await start({ PUBLIC_URL: publicUrl })
    replicas[at] = started
    await until('it gets requests', () => ready.includes(started))
  }
  await load.more(50)
  const counts = await load.end()
  t.strictSame([...counts.keys()], [200], 'nobody is signed out, and each read and each update succeeded')
})

t.test('a server exits with 0 after the delay, from whose end SHUTDOWN_SECONDS counts', async (t) => {
  const { first } = await startSystem(t, { SHUTDOWN_DELAY_SECONDS: '6', SHUTDOWN_SECONDS: '4' })
  first.send('SIGTERM')
  t.equal((await first.ended).code, 0, 'counted from the signal the time would be up: 1')
})
