import { Agent, request } from 'node:http'
import t, { type Test } from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { startRedis } from '../helpers/redis.ts'
import { elapsed, until } from '../helpers/replicas.ts'
import { type Env, type ServerProcess, startServer } from '../helpers/server-process.ts'
import { CLIENT, signIn, startSandbox } from '../helpers/system.ts'

const DELAY_MS = 2_000

async function startSystem(t: Test, env: Env) {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const settings = {
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

/** The status of one call, a read or an update; the code of the failure where no response came. */
function call(
  url: string,
  headers: Record<string, string>,
  { agent, isUpdate }: { agent: Agent | undefined; isUpdate: boolean },
): Promise<number | string> {
  const [path, method] = isUpdate ? ['/site/1', 'PUT'] : ['/flux/temperature', 'GET']
  const all = isUpdate ? { ...headers, 'content-type': 'application/json' } : headers
  return new Promise((resolve) => {
    request(`${url}${path}`, { method, headers: all, agent: agent ?? false }, (response) => {
      response.resume()
      response.once('close', () => resolve(response.complete ? response.statusCode! : 'cut off'))
    })
      .on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
      .end(isUpdate ? '{"name":"A"}' : undefined)
  })
}

/** Calls by clients with one kept connection each and by clients with new connections, until `end()`. */
function startLoad(t: Test, pick: () => string, headers: Record<string, string>) {
  const counts = new Map<number | string, number>()
  let over = false
  const client = async (at: number): Promise<void> => {
    const agent = at % 2 === 0 ? new Agent({ keepAlive: true, maxSockets: 1 }) : undefined
    t.teardown(() => agent?.destroy())
    while (!over) {
      const status = await call(pick(), headers, { agent, isUpdate: at % 3 === 0 })
      counts.set(status, (counts.get(status) ?? 0) + 1)
      await elapsed(2)
    }
  }
  const clients = Array.from({ length: 6 }, (_, at) => client(at))
  return {
    async end(): Promise<Map<number | string, number>> {
      over = true
      await Promise.all(clients)
      return counts
    },
  }
}

for (const workers of ['1', '2']) {
  t.test(
    `after a stop signal a server is not ready at once and serves on for SHUTDOWN_DELAY_SECONDS (WORKERS=${workers})`,
    async (t) => {
      const { first, headers } = await startSystem(t, { WORKERS: workers })
      const load = startLoad(t, () => first.url, headers)
      await elapsed(200)
      const begin = performance.now()
      first.send('SIGTERM')
      await until('not ready', async () => (await readyz(first)).status === 503, DELAY_MS / 3)
      t.match((await readyz(first)).text, /the process is stopping/)
      await elapsed(DELAY_MS * 0.8 - (performance.now() - begin))
      const counts = await load.end()
      t.strictSame([...counts.keys()], [200], 'each read and each update succeeded')
      t.ok((counts.get(200) ?? 0) > 100, `under load: ${counts.get(200)}`)
      t.equal((await readyz(first)).status, 503, 'health is served until the end')
      t.equal((await first.ended).code, 0)
      const ms = performance.now() - begin
      t.ok(ms >= DELAY_MS && ms < DELAY_MS + 5_000, `ended after ${ms} ms`)
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
  const load = startLoad(t, () => ready[turn++ % ready.length]!.url, headers)
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
  const { first, headers } = await startSystem(t, { SHUTDOWN_SECONDS: '1' })
  const begin = performance.now()
  first.send('SIGTERM')
  await elapsed(DELAY_MS - 300)
  t.equal(await call(first.url, headers, { agent: undefined, isUpdate: false }), 200)
  t.equal((await first.ended).code, 0)
  t.ok(performance.now() - begin >= DELAY_MS)
})
