import t from 'tap'
import type { Answer } from '../helpers/browser.ts'
import { freePort } from '../helpers/ports.ts'
import { DURABLE, type RedisServer, startRedis } from '../helpers/redis.ts'
import { presentations, signInExpired } from '../helpers/replicas.ts'
import { opsStatus, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { begin, comeBack } from '../login/sign-ins.ts'
import { counted } from './load.ts'

/** A Redis that does not do what it should. */
interface Trouble {
  begin(redis: RedisServer): Promise<unknown>
  end(redis: RedisServer): Promise<unknown>
  /** It still answers reads: a session whose token is fresh needs no more. */
  reads?: boolean
  /** It still deletes: a session can be ended. */
  deletes?: boolean
}

const TROUBLES: Record<string, Trouble> = {
  'no Redis': { begin: (redis) => redis.stop(), end: (redis) => redis.restart() },
  'a full memory': {
    begin: (redis) => redis.cli('config', 'set', 'maxmemory', '1'),
    end: (redis) => redis.cli('config', 'set', 'maxmemory', '0'),
    reads: true,
    deletes: true,
  },
  'a master that was made a replica': {
    begin: async (redis) => redis.cli('replicaof', '127.0.0.1', String(await freePort())),
    end: (redis) => redis.cli('replicaof', 'no', 'one'),
    reads: true,
  },
  'permissions that were taken away': {
    begin: (redis) => redis.cli('acl', 'setuser', 'app', '-@all'),
    end: (redis) => redis.cli('acl', 'setuser', 'app', '+@all'),
  },
}

/** A user of Redis whose permissions can be taken away, and data that a stop keeps. */
const REDIS_ARGS = ['--user', 'app', 'on', '>app-password', '~*', '&*', '+@all', ...DURABLE]

// Most of the time is spent waiting.
t.jobs = 4

for (const [name, trouble] of Object.entries(TROUBLES)) {
  t.test(`${name}: what needs the store gets 503 at once, and the cookies work afterwards`, async (t) => {
    const redis = await startRedis(t, { args: REDIS_ARGS })
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox, {
      REDIS_URL: `redis://app:app-password@127.0.0.1:${redis.port}`,
      STORE_WAIT_MS: '0',
    })
    await untilReady(bff)
    const [fresh, leaver, coming] = [bff.browser(), bff.browser(), bff.browser()]
    await signIn(fresh, sandbox)
    await signIn(leaver, sandbox)
    const back = await begin(coming, sandbox, { query: '?returnTo=%2Fapp' })
    const due = await signInExpired(bff, sandbox)
    sandbox.journal.clear()

    const isRefused = (what: string, answer: Answer): void => {
      t.equal(answer.status, 503, what)
      t.match(answer.headers['retry-after'], /^[1-9]\d*$/, what)
      t.strictSame(answer.setCookies, [], what)
    }

    await trouble.begin(redis)
    const [dueCall, freshCall, session, noSession, logout, callback, login, ready] = await Promise.all([
      due.fetch('/flux/a'),
      fresh.fetch('/flux/a'),
      fresh.fetch('/auth/session'),
      bff.browser().fetch('/auth/session'),
      leaver.fetch('/auth/logout', { method: 'POST' }),
      comeBack(coming, back),
      bff.browser().navigate('/auth/login'),
      opsStatus(bff),
    ])
    isRefused('a call that needs a refresh', dueCall)
    t.match(dueCall.json(), { code: 'store_unavailable' })
    if (trouble.reads === true) {
      t.equal(freshCall.status, 200, 'a call that needs a read alone')
      t.match(session.json(), { authenticated: true })
      t.match(noSession.json(), { authenticated: false })
    } else {
      isRefused('a call', freshCall)
      t.match(freshCall.json(), { code: 'store_unavailable' })
      isRefused('/auth/session', session)
      isRefused('/auth/session without a cookie', noSession)
    }
    if (trouble.deletes === true) t.equal(logout.status, 204, 'a sign-out')
    else isRefused('a sign-out', logout)
    isRefused('a callback', callback)
    t.match(callback.headers['content-type'], /^text\/html/, 'a page, and no way round in a circle')
    t.match(callback.text, '<p>The sign-in could not be completed. Try again in a moment.</p>')
    t.equal(callback.headers.location, undefined)
    t.strictSame(sandbox.journal.entries({ endpoint: 'token' }), [], 'no code is redeemed')
    t.equal(await counted([bff], 'bff_sign_in_failures_total{reason="store"}'), 1)
    t.equal(login.status, 303, 'to begin a sign-in needs no store')
    t.equal(ready, 503)

    await trouble.end(redis)
    await untilReady(bff)
    await until('a call that needs a refresh', async () => (await due.fetch('/flux/a')).status === 200)
    t.equal((await fresh.fetch('/flux/a')).status, 200)
    const stays = trouble.deletes === true ? 401 : 200
    t.equal((await leaver.fetch('/flux/a')).status, stays)
    t.equal((await comeBack(coming, back)).headers.location, '/app#_', 'the same callback works')
    t.equal((await coming.fetch('/flux/a')).status, 200)
    t.equal(presentations(sandbox).length, 1, 'the refresh token was presented once')
    t.equal(sandbox.counters().reuseDetected, 0)
  })
}
