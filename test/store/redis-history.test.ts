import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { until } from '../helpers/wait.ts'
import {
  begin,
  granted,
  LONG,
  read,
  release,
  replace,
  runCases,
  type Step,
  waitsLong,
  written,
} from './contract-steps.ts'
import { PREFIX, redisStore, singleTarget, startSession } from './stores.ts'

/** The longest pause of a request that has no valid token. */
const paused = { kind: 'paused', waitMs: 4_000 }
const pausedStill = (begun: { kind: string; waitMs: number }) =>
  begun.kind === 'paused' && begun.waitMs <= 4_000

/** `promotion` changes the replication history of the server. */
const casesOf = (
  promotion: () => unknown,
  set: (...fields: string[]) => Step[0],
): Record<string, Step[]> => ({
  'a session that begins under a history is refreshed without a pause': [[begin('a'), granted(0)]],
  'while the access token is valid the pause lasts one lease': [
    [promotion],
    [begin('a', { livesMs: 2 * LONG }), { kind: 'paused', waitMs: LONG }],
  ],
  'the pause never lasts past the expiry of the access token': [
    [promotion],
    [begin('a', { livesMs: LONG / 2 }), { kind: 'paused', waitMs: LONG / 2 }],
  ],
  'the pause lasts four seconds at least': [[promotion], [begin('a', { livesMs: 1_000 }), paused]],
  'a presentation in doubt whose lease was lost counts, and delays the next refresh after the pause': [
    [begin('a'), granted(0)],
    // As on a replica that had not received the lease.
    [set('lease', '', 'leaseUntil', '0', 'leasedAt', '0', 'doubts', '0')],
    [promotion],
    [begin('b', { livesMs: LONG }), { kind: 'paused' }],
    [release('a', { doubts: 1, retryInMs: LONG })],
    [begin('b', { livesMs: LONG }), { kind: 'paused' }],
    [read, { doubts: 1 }],
    [set('leaseUntil', '0')],
    [begin('b'), { kind: 'backing_off' }],
  ],
  'each history causes one pause': [
    [promotion],
    [begin('a'), paused],
    [set('leaseUntil', '0')],
    [begin('a'), granted(0)],
    [release('a')],
    [promotion],
    [begin('b'), paused],
  ],
  'the holder of a lease keeps it, and the pause follows': [
    [begin('a'), granted(0)],
    [promotion],
    [begin('a'), granted(0)],
    [begin('b'), waitsLong('busy')],
    [release('a')],
    [begin('b'), paused],
  ],
  'tokens that are written during the pause do not end it, since newer ones may follow': [
    [promotion],
    [begin('a'), paused],
    [replace(1), written],
    [begin('a', { gen: 2 }), pausedStill],
    [replace(2), written],
    [begin('a', { gen: 3 }), pausedStill],
  ],
})

t.test('a server whose history changes, as at a promotion', async (t) => {
  const redis = await startRedis(t, { args: ['--enable-debug-command', 'yes'] })
  const made = await redisStore(t, singleTarget(redis.port))
  const promotion = () => redis.cli('debug', 'change-repl-id')
  await runCases(
    t,
    made,
    casesOf(
      promotion,
      (...fields) =>
        ({ key }) =>
          redis.cli('hset', `${PREFIX}s:${key}`, ...fields),
    ),
  )

  await t.test(
    'after a change of history no refresh begins for some seconds, not even a forced one',
    async (t) => {
      const session = { ...made, key: await startSession(made) }
      await promotion()
      for (const forcedWindowMs of [0, LONG])
        t.ok(
          pausedStill((await begin('a', { forcedWindowMs })(session)) as never),
          `window ${forcedWindowMs}`,
        )
      const isGranted = async () => ((await begin('a')(session)) as { kind: string }).kind === 'granted'
      const waited = await until('the pause has ended', isGranted)
      t.ok(waited > 3_000, `after ${Math.round(waited)} ms`)
      t.equal((await made.store.read(session.key))?.doubts, 1, 'the pause leaves no doubt')
    },
  )

  await t.test('a Redis user without permission for INFO refreshes without a pause', async (t) => {
    const session = { ...made, key: await startSession(made) }
    await redis.cli('acl', 'setuser', 'default', '-info')
    await promotion()
    t.match(await begin('a')(session), granted(0))
    t.match(await begin('a')({ ...made, key: await startSession(made) }), granted(0))
  })
})
