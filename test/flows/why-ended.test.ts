import t, { type Test } from 'tap'
import { recordKeyOf } from '../../src/session/cookies.ts'
import { type Replicas, startReplicas, through } from '../helpers/replicas.ts'
import { type Bff, signIn } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { sessions } from '../operator/run.ts'

const SECRET = 'the-first-secret-of-the-tests-of-32-characters'

const HOUR_MS = 3_600_000

interface Way {
  /** Of the session of the browser that has signed in. */
  end: (t: Test, started: Replicas, browser: ReturnType<Bff['browser']>) => Promise<unknown>
  says: RegExp
}

const WAYS: Record<string, Way> = {
  'signed out': {
    end: async (t, { redis }, browser) => {
      const key = recordKeyOf(browser.cookies.get('session')!.value.slice(0, 43))
      await browser.fetch('/auth/logout', { method: 'POST' })
      const keptMs = Number(await redis.cli('PTTL', `bff:e:{bff:s:${key}}`))
      t.ok(keptMs > HOUR_MS - 60_000 && keptMs <= HOUR_MS, `the reason is kept for ${keptMs} ms`)
    },
    says: /signing out/,
  },
  'signed in again in the same browser': {
    end: (_t, { sandbox }, browser) => signIn(browser, sandbox),
    says: /new one was started/,
  },
  'refused by the authorization server': {
    end: async (_t, { sandbox }, browser) => {
      sandbox.expireAccessTokens()
      sandbox.faults.set({ tokenEndpoint: { mode: 'refuse', only: 'refresh_token' } })
      await browser.fetch('/flux/temperature')
    },
    says: /no longer accepts its tokens/,
  },
  'ended by an operator': {
    end: (t, { redis }) => sessions(t, { REDIS_URL: redis.url, SESSION_SECRET: SECRET }, 'end-all', '--yes'),
    says: /operator/,
  },
}

const LIMITS: Record<string, Way & { env: Record<string, string> }> = {
  'not used for too long': {
    env: { SESSION_IDLE_SECONDS: '1' },
    // Asking would count as use.
    end: () => elapsed(1_500),
    says: /time without use/,
  },
  'at the end of its longest duration': {
    env: { SESSION_MAX_SECONDS: '1' },
    end: async () => {},
    says: /longest duration/,
  },
}

async function isReported(t: Test, started: Replicas, { end, says }: Way): Promise<void> {
  const [here, elsewhere] = started.replicas
  const browser = here.browser()
  await signIn(browser, started.sandbox)
  const before = through(here, browser)
  await end(t, started, browser)
  for (const replica of [here, elsewhere, here]) {
    const old = through(replica, before)
    let answer = await old.fetch('/flux/temperature')
    await until('the session has ended', async () => {
      answer = await old.fetch('/flux/temperature')
      return answer.status === 401
    })
    t.match(answer.json(), { code: 'login_required', detail: says })
  }
}

t.test('each replica reports, however often it is asked, that a session was', async (t) => {
  const started = await startReplicas(t)
  for (const [name, way] of Object.entries(WAYS)) await t.test(name, (t) => isReported(t, started, way))
})

for (const [name, limit] of Object.entries(LIMITS)) {
  t.test(`each replica reports that a session was ${name}`, async (t) => {
    await isReported(t, await startReplicas(t, limit.env), limit)
  })
}
