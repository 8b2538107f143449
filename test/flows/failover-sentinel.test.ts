import t from 'tap'
import { type SentinelGroup, startSentinelGroup } from '../helpers/redis-groups.ts'
import { through } from '../helpers/replicas.ts'
import { opsStatus, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { counted, presentedAgain, signInMany, startLoad, untilAllRefreshed } from './load.ts'

t.jobs = 3

const LIFE_SECONDS = 5

async function promoted(group: SentinelGroup): Promise<void> {
  await until('the replica is the master', async () => (await group.masterPort()) === group.replica.port)
}

t.test(
  'killing the master under load loses no session, rotation or sign-out, also if the replica missed them',
  async (t) => {
    const group = await startSentinelGroup(t)
    const sandbox = await startSandbox(t, { tokenLifeSeconds: LIFE_SECONDS })
    const env = { REDIS_URL: group.url }
    const replicas = [await startBff(t, sandbox, env), await startBff(t, sandbox, env)]
    await Promise.all(replicas.map(untilReady))
    const browsers = await signInMany(replicas, sandbox, 10)
    const [leaving, ...staying] = browsers
    const load = startLoad(staying, replicas)
    await load.untilAllServed()

    await group.cutReplication()
    t.equal((await through(replicas[0]!, leaving!).fetch('/auth/logout', { method: 'POST' })).status, 204)
    await untilAllRefreshed(group.master)
    t.strictSame(load.answers(), ['200'], 'before')

    load.mark()
    await group.master.kill()
    // It has seen nothing of what came before.
    const late = await startBff(t, sandbox, env)
    await promoted(group)
    await load.untilAllServed()
    await untilReady(late)
    for (const browser of staying)
      t.equal((await through(late, browser).fetch('/flux/temperature')).status, 200)
    const meanwhile = load.answers().filter((kind) => !kind.startsWith('503 '))
    t.strictSame(meanwhile, ['200'], 'meanwhile nothing but answers and 503')

    load.mark()
    await elapsed(LIFE_SECONDS * 1_000)
    await load.stop()
    t.strictSame(load.answers(), ['200'], 'after')
    for (const replica of [...replicas, late]) {
      t.equal((await through(replica, leaving!).fetch('/flux/temperature')).status, 401)
    }
    t.equal(sandbox.counters().reuseDetected, 0)
    t.equal(presentedAgain(sandbox), 0, 'no refresh token was presented twice')
    t.ok((await counted(replicas, 'bff_store_restored_total{what="tokens"}')) > 0)
    t.equal(await counted(replicas, 'bff_store_restored_total{what="end"}'), 1)
  },
)

t.test('REDIS_SENTINEL_PASSWORD opens Sentinels whose data nodes have another password', async (t) => {
  const passwords = { data: 'pw-of-the-data', sentinels: 'pw-of-the-sentinels' }
  const group = await startSentinelGroup(t, { passwords })
  const sandbox = await startSandbox(t)
  const env = { REDIS_URL: group.url }
  const bff = await startBff(t, sandbox, { ...env, REDIS_SENTINEL_PASSWORD: passwords.sentinels })
  await untilReady(bff)
  const browser = bff.browser()
  t.equal((await signIn(browser, sandbox)).status, 303)
  t.equal((await browser.fetch('/flux/temperature')).status, 200)

  for (const [wrong, reason] of [
    [{ REDIS_SENTINEL_PASSWORD: 'pw-that-is-wrong' }, /WRONGPASS/],
    [{}, /NOAUTH/],
  ] as const) {
    const refused = await startBff(t, sandbox, { ...env, ...wrong })
    await until('it says why', () => reason.test(refused.log()))
    t.equal(await opsStatus(refused), 503)
    t.notMatch(refused.log(), /pw-of|pw-that/, 'no password is logged')
  }
})
