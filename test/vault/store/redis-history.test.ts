import t from 'tap'
import { startRedis } from '../../helpers/redis.ts'
import { until } from '../../helpers/wait.ts'
import { leaseRequest, redisStore, singleTarget, startSession } from './stores.ts'

t.test('a server whose history changes, as at a promotion', async (t) => {
  const redis = await startRedis(t, { args: ['--enable-debug-command', 'yes'] })
  const made = await redisStore(t, singleTarget(redis.port))
  const { store } = made
  const promotion = () => redis.cli('debug', 'change-repl-id')

  await t.test(
    'after a change of history no refresh begins for some seconds, not even a forced one',
    async (t) => {
      const key = await startSession(made)
      const promotedAt = performance.now()
      await promotion()
      for (const forcedWindowMs of [0, 60_000])
        t.match(await store.beginRefresh(key, leaseRequest('a', { forcedWindowMs })), { kind: 'paused' })
      await until(
        'the pause has ended',
        async () => (await store.beginRefresh(key, leaseRequest('a'))).kind === 'granted',
      )
      t.ok(performance.now() - promotedAt > 3_000)
      t.equal((await store.read(key))?.doubts, 1, 'the pause leaves no doubt')
    },
  )

  await t.test('a Redis user without permission for INFO refreshes without a pause', async (t) => {
    const before = await startSession(made)
    await redis.cli('acl', 'setuser', 'default', '-info')
    await promotion()
    for (const key of [before, await startSession(made)])
      t.match(await store.beginRefresh(key, leaseRequest('a')), { kind: 'granted' })
  })
})
