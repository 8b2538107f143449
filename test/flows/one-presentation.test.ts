import net from 'node:net'
import t from 'tap'
import { COMMAND_TIMEOUT_MS, LAST_STEP_MS } from '../../src/vault/store/redis/command-timeout.ts'
import { type Answer, type Browser, createBrowser } from '../helpers/browser.ts'
import type { Teardown } from '../helpers/child.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { presentations, signInExpired, through } from '../helpers/replicas.ts'
import { startServer } from '../helpers/server-process.ts'
import { platformEnv, signInSurely, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { startProxy } from '../helpers/tcp-proxy.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { follow } from '../vault/refresh/virtual-replicas.ts'
import { presentedAgain } from './load.ts'

t.jobs = 2

const TOKEN_TIMEOUT_MS = '1000'
const LEASE_MS = 6_000
/** The fact that an attempt holds the lease, in the text of a record. */
const LEASE = '"l":"'

t.test('a process that is frozen between lease and request does not send it afterwards', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const proxy = await startProxy(t, redis.port)
  const env = { SESSION_STORE: 'redis', ...platformEnv(sandbox), TOKEN_TIMEOUT_MS }
  const stalled = await startServer(t, { ...env, REDIS_URL: `redis://127.0.0.1:${proxy.port}` })
  const other = await startServer(t, { ...env, REDIS_URL: redis.url })
  sandbox.faults.set({ expiresIn: { value: 0 } })
  // A first session, after which Redis knows the script by its hash.
  const first = createBrowser(stalled.publicUrl)
  await signInSurely(first, sandbox)
  t.equal((await first.fetch('/flux/temperature')).status, 200)
  // On a slow machine it would be refreshed meanwhile.
  t.equal((await first.fetch('/auth/logout', { method: 'POST' })).status, 204)
  let browser: Browser
  let asked: Promise<Answer>
  for (;;) {
    browser = createBrowser(stalled.publicUrl)
    sandbox.faults.set({ expiresIn: { value: 0 } })
    await signInSurely(browser, sandbox)
    sandbox.faults.set({ expiresIn: 'truth' })
    const startedAt = performance.now()
    let tookMs = Number.POSITIVE_INFINITY
    const held = proxy.holdAnswers(LEASE, () => {
      stalled.send('SIGSTOP')
      tookMs = performance.now() - startedAt
    })
    asked = browser.fetch('/flux/temperature')
    const state = follow(asked)
    await until('the lease is asked for', () => held.wasMet() || state.isOver)
    held.release()
    if (tookMs < COMMAND_TIMEOUT_MS - LAST_STEP_MS) break
    // Where this machine was held up, the process may have given the lease up before it was frozen, or not asked for it.
    stalled.send('SIGCONT')
    await asked
  }
  const elsewhere = through(other, browser)
  await elapsed(LEASE_MS)
  await until('the other replica refreshes', async () => {
    return (await elsewhere.fetch('/flux/temperature')).status === 200
  })
  stalled.send('SIGCONT')
  t.equal((await asked).status, 200, 'it looks again and finds the new tokens')
  t.equal(presentedAgain(sandbox), 0, 'no refresh token was presented twice')
  t.equal(sandbox.counters().reuseDetected, 0)
  t.equal((await elsewhere.fetch('/flux/temperature')).status, 200)
})

/** A network to the token endpoint that delivers what was sent during a partition when it heals, as TCP does. */
async function startPartition(t: Teardown, port: number) {
  const delayed: (() => void)[] = []
  let partitioned = false
  const server = net.createServer((client) => {
    const upstream = net.connect(port, '127.0.0.1')
    client.on('data', (data) => {
      if (partitioned) delayed.push(() => void upstream.write(data))
      else upstream.write(data)
    })
    upstream.on('data', (data) => client.write(data))
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      one.on('error', () => {})
      one.on('close', () => other.destroy())
    }
  })
  return {
    port: await listenOnLoopback(t, server),
    begin: () => {
      partitioned = true
    },
    heal: () => {
      partitioned = false
      for (const deliver of delayed.splice(0)) deliver()
    },
  }
}

t.test('a request that a partition holds back is reset before the token is presented again', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const authUrl = new URL(sandbox.authUrl)
  const partition = await startPartition(t, Number(authUrl.port))
  const env = { REDIS_URL: redis.url, TOKEN_TIMEOUT_MS, OAUTH_SCOPE: sandbox.baseUrl }
  const path = authUrl.pathname.replace(/\/$/, '')
  const cutOff = await startBff(t, sandbox, {
    ...env,
    OAUTH_TOKEN_URL: `http://127.0.0.1:${partition.port}${path}/oauth/token`,
  })
  const other = await startBff(t, sandbox, env)
  await Promise.all([cutOff, other].map(untilReady))
  const browser = await signInExpired(cutOff, sandbox)
  partition.begin()
  const begunAt = performance.now()
  t.equal((await browser.fetch('/flux/temperature')).status, 503)
  const elsewhere = through(other, browser)
  await until(
    'new tokens by the other replica',
    async () => (await elsewhere.fetch('/flux/temperature')).status === 200,
  )
  t.ok(performance.now() - begunAt > 25_000, 'not while the first request may still be answered')
  partition.heal()
  await elapsed(500)
  t.equal(presentations(sandbox).length, 1, 'the first request is never delivered')
  t.equal(sandbox.counters().reuseDetected, 0)
  t.equal((await elsewhere.fetch('/flux/temperature')).status, 200)
})
