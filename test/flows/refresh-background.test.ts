import t from 'tap'
import type { Browser } from '../helpers/browser.ts'
import { startRedis } from '../helpers/redis.ts'
import { presentations, startReplicas, through } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { counted } from './load.ts'

t.jobs = 4

t.test('without traffic tokens are refreshed until the idle limit, which does not move', async (t) => {
  const sandbox = await startSandbox(t, { tokenLifeSeconds: 2 })
  const bff = await startBff(t, sandbox, { SESSION_IDLE_SECONDS: '12' })
  const browser = bff.browser()
  const begin = performance.now()
  await signIn(browser, sandbox)
  const before = (await browser.fetch('/auth/session')).json()
  await elapsed(5_500)
  const after = (await browser.fetch('/auth/session')).json()
  t.equal(after.idleExpiresAt, before.idleExpiresAt)
  t.equal(after.expiresAt, before.expiresAt)
  const count = presentations(sandbox).length
  // Not before two thirds of a life.
  const most = Math.floor((performance.now() - begin) / 1_333)
  t.ok(count >= 3 && count <= most, `refreshed ${count} times in 5.5 s of tokens that live 2 s`)
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

t.test('three replicas share the background refreshes: one for each session and expiry', async (t) => {
  const { sandbox, replicas } = await startReplicas(t)
  sandbox.faults.set({ tokenLifeSeconds: 3 })
  const browsers: Browser[] = []
  for (let at = 0; at < 12; at += 1) {
    const browser = replicas[at % 3]!.browser()
    await signIn(browser, sandbox)
    browsers.push(browser)
  }
  const before = presentations(sandbox).length
  const count = () => presentations(sandbox).length - before
  await elapsed(6_500)
  await until('two refreshes of each', () => count() >= 12 * 2)
  t.ok(count() <= 12 * 4, `${count()} refreshes`)
  const sent = presentations(sandbox).map(({ form }) => form?.refresh_token)
  t.equal(new Set(sent).size, sent.length, 'no refresh token was presented twice')
  t.equal(sandbox.counters().reuseDetected, 0)
  for (const [at, browser] of browsers.entries()) {
    const answer = await through(replicas[(at + 1) % 3]!, browser).fetch('/flux/temperature')
    t.equal(answer.status, 200, answer.status === 200 ? 'goes on' : answer.text)
  }
})

t.test('a token endpoint that is down for two token lifetimes signs nobody out', async (t) => {
  const sandbox = await startSandbox(t, { tokenLifeSeconds: 3 })
  const redis = await startRedis(t)
  const env = { REDIS_URL: redis.url, TOKEN_TIMEOUT_MS: '2000' }
  const replicas = [await startBff(t, sandbox, env), await startBff(t, sandbox, env)] as const
  const browsers: Browser[] = []
  for (let at = 0; at < 12; at += 1) {
    const browser = replicas[at % 2]!.browser()
    await signIn(browser, sandbox)
    browsers.push(browser)
  }
  sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 503, only: 'refresh_token' } })
  const downAt = Date.now()
  const seen = new Set<string>()
  while (Date.now() - downAt < 6_500) {
    for (const browser of browsers) {
      const session = (await browser.fetch('/auth/session')).json()
      const answer = await browser.fetch('/flux/temperature')
      // Looked at afterwards: a call may begin with a token that expires while it waits for a refresh.
      const alive = Date.parse(String(session.accessTokenExpiresAt)) > Date.now()
      seen.add(`${alive ? 'alive' : 'expired'} ${answer.status}`)
      if (answer.status === 503) t.ok(answer.headers['retry-after'], 'says when to come back')
    }
    await elapsed(200)
  }
  t.notOk(seen.has('alive 503'), 'tokens that live go on being used')
  t.ok(seen.has('expired 503'))
  const tried = presentations(sandbox).length
  t.ok(tried < 80, `tried ${tried} times in six seconds for twelve sessions on two replicas`)

  sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })
  await until('everybody', async () => {
    const answers = await Promise.all(browsers.map((browser) => browser.fetch('/flux/temperature')))
    return answers.every(({ status }) => status === 200)
  })
  t.equal(sandbox.counters().reuseDetected, 0)
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
