import assert from 'node:assert/strict'
import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { presentations } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed, unlessHeldUp, until, watchLateness } from '../helpers/wait.ts'
import { counted } from './load.ts'

t.jobs = 4

t.test('without traffic tokens are refreshed until the idle limit, which does not move', async (t) => {
  const sandbox = await startSandbox(t, { tokenLifeSeconds: 2 })
  const bff = await startBff(t, sandbox, { SESSION_IDLE_SECONDS: '30' })
  const browser = bff.browser()
  const begin = performance.now()
  await signIn(browser, sandbox)
  const before = (await browser.fetch('/auth/session')).json()
  const endWatch = watchLateness()
  const took = await until('three refreshes', () => presentations(sandbox).length >= 3)
  const { lateMs } = endWatch()
  t.ok(took - lateMs <= 5_500, `three refreshes in ${took} ms, ${lateMs} ms of these late`)
  const after = (await browser.fetch('/auth/session')).json()
  t.equal(after.idleExpiresAt, before.idleExpiresAt)
  t.equal(after.expiresAt, before.expiresAt)
  const count = presentations(sandbox).length
  // Not before two thirds of a life.
  const most = Math.floor((performance.now() - begin) / 1_333)
  t.ok(count <= most, `refreshed ${count} times, at most ${most} expected of tokens that live 2 s`)
  t.ok((await counted([bff], 'bff_refresh_lag_seconds_count')) >= count, 'the lag of each is measured')
  await until('its end', async () => {
    return (await counted([bff], 'bff_sessions_ended_total{reason="idle"}')) === 1
  })
  t.match((await browser.fetch('/auth/session')).json(), { authenticated: false })
  const last = presentations(sandbox).length
  await elapsed(2_500)
  t.equal(presentations(sandbox).length, last, 'no refresh of a session that has ended')
  t.equal(await counted([bff], 'bff_refresh_due'), 0)
  t.equal(sandbox.counters().reuseDetected, 0)
})

t.test('a refresh token that ends long before the access token is refreshed in time', async (t) => {
  const sandbox = await startSandbox(t, { tokenLifeSeconds: 3_600 })
  sandbox.faults.set({ refreshLifeSeconds: 12, refreshExpiresIn: 'refresh_expires_in' })
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  // Each refresh is due four seconds before that end.
  await unlessHeldUp(1_000, async () => {
    await signIn(browser, sandbox)
    const [begin, before] = [performance.now(), presentations(sandbox).length]
    const refreshes = () => presentations(sandbox).length - before
    await until(
      'two refreshes, or twice that life',
      () => refreshes() >= 2 || performance.now() > begin + 24_000,
    )
    assert.ok(refreshes() >= 2)
    const { authenticated } = (await browser.fetch('/auth/session')).json()
    assert.equal(authenticated, true)
  })
})

t.test('an idle server sends Redis nothing but polls of the due queue and a rare scan', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url })
  await untilReady(bff)
  const calls = async (): Promise<Map<string, number>> => {
    const text = await redis.cli('info', 'commandstats')
    return new Map(
      [...text.matchAll(/^cmdstat_(\S+?):calls=(\d+)/gm)].map(([, name, n]) => [name!, Number(n)]),
    )
  }
  // Its first look at the server and at its rights is over by then.
  await until('it has polled three times', async () => ((await calls()).get('evalsha') ?? 0) >= 3)
  await redis.cli('config', 'resetstat')
  await until('it has polled five more times', async () => ((await calls()).get('evalsha') ?? 0) >= 5)
  const sent = await calls()
  // The test's own, and those inside the script of a poll.
  for (const name of ['config|resetstat', 'info', 'evalsha', 'time', 'zrangebyscore', 'del'])
    sent.delete(name)
  // One scan within the first minute, with its claim.
  for (const [name, most] of Object.entries({ scan: 1, get: 1, set: 1, eval: 1 })) {
    t.ok((sent.get(name) ?? 0) <= most, name)
    sent.delete(name)
  }
  t.strictSame([...sent], [])
})
