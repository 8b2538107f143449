import tap, { type Test } from 'tap'
import { recordKeyOf } from '../../src/http/cookies.ts'
import type { Browser } from '../helpers/browser.ts'
import { type Replicas, startReplicas, through } from '../helpers/replicas.ts'
import { signIn, signInSurely } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { sessions } from '../operator/run.ts'

const SESSION_SECRET = 'the-first-secret-of-the-tests-of-32-characters'
const HOUR_MS = 3_600_000

/** By the words of the detail: how the session of this browser ends. */
const WAYS: Record<string, (t: Test, started: Replicas, browser: Browser) => Promise<unknown>> = {
  'signing out': async (t, { redis }, browser) => {
    const key = recordKeyOf(browser.cookies.get('session')!.value.slice(0, 43))
    await browser.fetch('/auth/logout', { method: 'POST' })
    const keptMs = Number(await redis.cli('PTTL', `bff:e:{bff:s:${key}}`))
    t.ok(keptMs > HOUR_MS - 60_000 && keptMs <= HOUR_MS, `the reason is kept for ${keptMs} ms`)
  },
  'new one was started': (_t, { sandbox }, browser) => signIn(browser, sandbox),
  'no longer accepts its tokens': async (_t, { sandbox }, browser) => {
    sandbox.expireAccessTokens()
    sandbox.faults.set({ tokenEndpoint: { mode: 'refuse', only: 'refresh_token', times: 1 } })
    await browser.fetch('/flux/temperature')
  },
  'by an operator': (t, { redis }) =>
    sessions(t, { REDIS_URL: redis.url, SESSION_SECRET }, 'end-all', '--yes'),
  // Asking would count as use.
  'time without use': () => elapsed(2_500),
  'longest duration': async () => {},
}

const LIMITS: Record<string, Record<string, string>> = {
  'time without use': { SESSION_IDLE_SECONDS: '2' },
  'longest duration': { SESSION_MAX_SECONDS: '2' },
}

let usual: Promise<Replicas> | undefined

for (const [words, end] of Object.entries(WAYS)) {
  tap.test(`each replica reports, however often it is asked, why a session ended: ${words}`, async (t) => {
    const limit = LIMITS[words]
    usual ??= startReplicas(tap)
    const started = await (limit === undefined ? usual : startReplicas(t, limit))
    const [here, elsewhere] = started.replicas
    const browser = here.browser()
    await signInSurely(browser, started.sandbox)
    const before = through(here, browser)
    await end(t, started, browser)
    for (const replica of [here, elsewhere, here]) {
      const old = through(replica, before)
      let answer = await old.fetch('/flux/temperature')
      await until('the session has ended', async () => {
        answer = await old.fetch('/flux/temperature')
        return answer.status === 401
      })
      t.match(answer.json(), { code: 'login_required', detail: new RegExp(words) })
    }
  })
}
