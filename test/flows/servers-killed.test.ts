import t from 'tap'
import { PROFILES } from '../../sandbox/profiles.ts'
import { type Answer, createBrowser } from '../helpers/browser.ts'
import { startRedis } from '../helpers/redis.ts'
import { startServer } from '../helpers/server-process.ts'
import { documented, HEADINGS } from '../helpers/servers/documented.ts'
import { startProfile } from '../helpers/servers/profile.ts'
import { signIn, startBff, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'

// They wait half a minute each until the answer that was lost can no longer come.
t.jobs = 9

const redis = await startRedis(t)

for (const [name, heading] of Object.entries(HEADINGS)) {
  const profile = PROFILES[name]!
  const { lostAnswer } = documented(name)
  const variants = [
    { what: 'by default', outcome: lostAnswer, faults: {}, env: {} },
    ...(profile.kept === undefined ? [] : [{ what: profile.kept.setting, ...profile.kept, outcome: 'kept' }]),
  ]
  for (const { what, faults, env: more, outcome } of variants)
    t.test(
      `at ${heading} a session whose replica is killed during its refresh is ${outcome}, ${what}`,
      async (t) => {
        const { sandbox, env } = await startProfile(t, profile, {
          faults: { tokenLifeSeconds: 4, ...faults },
          env: {
            ...more,
            SESSION_STORE: 'redis',
            REDIS_URL: redis.url,
            REDIS_PREFIX: `${name}:${outcome}:`,
            SESSION_SECRET: 'a-secret-of-the-tests-longer-than-32-characters',
          },
        })
        const killed = await startServer(t, env)
        const browser = createBrowser(killed.publicUrl)
        const gate = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
        t.equal((await signIn(browser, sandbox)).status, 303)
        await gate.arrived
        await killed.stop('SIGKILL')
        gate.release()
        sandbox.faults.set({ tokenLifeSeconds: 3_600 })
        sandbox.expireAccessTokens()
        const survivor = await startBff(t, sandbox, env)
        await untilReady(survivor)
        let answer: Answer | null = null
        await until('an answer that is not 503', async () => {
          answer = await browser.fetch('/flux/temperature')
          return answer.status !== 503
        })
        t.equal(answer!.status === 200 ? 'kept' : 'lost', outcome, answer!.text)
      },
    )
}
