import t from 'tap'
import { type Browser, createBrowser } from '../helpers/browser.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { startReverseProxy } from '../helpers/reverse-proxy.ts'
import { type ServerProcess, startServer } from '../helpers/server-process.ts'
import { platformEnv, signIn, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { sessions } from '../operator/run.ts'

const A = 'secret-A-of-the-tests-of-32-characters'
const B = 'secret-B-of-the-tests-of-32-characters'
/** Sessions that nobody uses while the secrets change, those that call, and those that only need refreshes. */
const COUNTS = { idle: 6, busy: 6, refreshed: 6 }
const ALL = COUNTS.idle + COUNTS.busy + COUNTS.refreshed

interface Seals {
  older: number
  unreadable: number
  newest: number
}

// Most of the time is spent waiting.
t.jobs = 3

t.test('secrets change by rolling restarts under load, and nobody is signed out', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const front = await startReverseProxy(t)
  const all: ServerProcess[] = []
  const start = async (secrets: string): Promise<ServerProcess> => {
    const server = await startServer(t, {
      ...{ SESSION_STORE: undefined, REDIS_URL: redis.url, ...platformEnv(sandbox) },
      ...{ SESSION_SECRET: secrets, PUBLIC_URL: front.publicUrl },
    })
    all.push(server)
    await untilReady(server)
    return server
  }
  const seals = async (...secrets: string[]): Promise<Seals> => {
    const env = { REDIS_URL: redis.url, SESSION_SECRET: secrets.join(',') }
    const { lines } = await sessions(t, env, 'count', '--old-key', '--json')
    return JSON.parse(lines[0]!) as Seals
  }
  /** The next replica, while the other one serves. Then both do. */
  const replace = async (replicas: ServerProcess[], secrets: string): Promise<void> => {
    const [leaves, stays] = replicas as [ServerProcess, ServerProcess]
    front.forwardTo(portOfUrl(stays.url))
    t.equal(await leaves.stop(), 0)
    replicas.splice(0, 2, stays, await start(secrets))
    front.forwardTo(...replicas.map(({ url }) => portOfUrl(url)))
  }

  const replicas = [await start(A)]
  front.forwardTo(portOfUrl(replicas[0]!.url))
  const signInSome = async (count: number, lifeSeconds: number): Promise<Browser[]> => {
    sandbox.faults.set({ tokenLifeSeconds: lifeSeconds })
    const browsers = Array.from({ length: count }, () => createBrowser(front.publicUrl))
    for (const browser of browsers) await signIn(browser, sandbox)
    return browsers
  }
  const idle = await signInSome(COUNTS.idle, 3_600)
  const busy = await signInSome(COUNTS.busy, 3_600)
  // The last ones are refreshed all the time, with no call at all.
  const browsers = [...idle, ...busy, ...(await signInSome(COUNTS.refreshed, 4))]

  const answers = new Set<string>()
  let calls = 0
  let stopped = false
  const load = busy.map(async (browser) => {
    for (; !stopped; calls += 1) {
      const path = calls % 10 === 0 ? '/auth/session' : '/flux/temperature'
      const { status } = await browser.fetch(path)
      answers.add(`${status} ${path}`)
      await elapsed(250)
    }
  })
  const refreshed = () => sandbox.counters()['token refresh_token granted'] ?? 0
  /** Replicas with different secrets serve each session that calls several times, and refresh the others. */
  const mixed = async (): Promise<void> => {
    const before = { calls, refreshed: refreshed() }
    await until('calls', () => calls >= before.calls + 4 * COUNTS.busy)
    await until('refreshes', () => refreshed() >= before.refreshed + COUNTS.refreshed)
  }

  replicas.push(await start(`${A},${B}`))
  front.forwardTo(...replicas.map(({ url }) => portOfUrl(url)))
  await mixed()
  await replace(replicas, `${B},${A}`)
  await mixed()
  await replace(replicas, `${B},${A}`)
  const before = await seals(B, A)
  t.equal(before.unreadable, 0)
  t.ok(before.older >= COUNTS.idle + COUNTS.busy, `${before.older}: those that were not refreshed`)

  const env = { REDIS_URL: redis.url, SESSION_SECRET: `${B},${A}` }
  t.match(await sessions(t, env, 'reseal', '--json'), { code: 0, lines: [/"older":0/] })
  t.strictSame(await seals(B, A), { older: 0, unreadable: 0, newest: ALL })

  // Instead of SESSION_MAX_SECONDS: by then no browser has a cookie that A has signed.
  for (const browser of browsers) t.equal((await browser.fetch('/auth/session')).status, 200)
  await replace(replicas, B)
  await mixed()
  stopped = true
  await Promise.all(load)

  t.strictSame([...answers].sort(), ['200 /auth/session', '200 /flux/temperature'])
  front.forwardTo(portOfUrl(replicas[1]!.url))
  t.equal(await replicas[0]!.stop(), 0)
  const statuses = new Set<number>()
  for (const browser of browsers) statuses.add((await browser.fetch('/flux/temperature')).status)
  t.strictSame([...statuses], [200], 'every session goes on under the new secret alone')
  t.strictSame(await seals(B), { older: 0, unreadable: 0, newest: ALL })
  t.equal(sandbox.counters().reuseDetected, 0)
  for (const server of all) t.notMatch(server.output(), /session\.unreadable|"level":"error"/)
})
