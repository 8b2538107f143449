import { execFileSync } from 'node:child_process'
import t from 'tap'
import { createLog } from '../../src/log.ts'
import { createQueueRepair } from '../../src/tokens/queue-repair.ts'
import { codeBlock } from '../helpers/documentation.ts'
import { startRedis } from '../helpers/redis.ts'
import { presentations, signInFor } from '../helpers/replicas.ts'
import { startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { newKey, redisStore, singleTarget } from '../store/stores.ts'

const LIFE_SECONDS = 9

t.test('sessions of version 0.2, whose due queue had 16 keys, are refreshed in the background', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url })
  await untilReady(bff)
  sandbox.faults.set({ expiresIn: { value: 3_600 } })
  await signInFor(bff, sandbox, LIFE_SECONDS)
  t.equal(await redis.cli('zcount', 'bff:due', '0', '+inf'), '1')
  await redis.cli('del', 'bff:due')
  for (const shard of '0123456789abcdef') await redis.cli('zadd', `bff:due:{${shard}}`, '1', newKey())

  const { store } = await redisStore(t, singleTarget(redis.port))
  const scans = ['one', 'other'].map(() =>
    createQueueRepair({
      store,
      everyMs: 300,
      pauseMs: 10,
      monotonic: () => performance.now(),
      random: () => 0.1,
      log: createLog('silent'),
    }),
  )
  for (const scan of scans) scan.start()
  await until('the session is in the queue again', async () => (await store.queueLength()) === 1)
  await Promise.all(scans.map((scan) => scan.stop()))
  // On a machine that stalls for seconds there may be more: tokens issued during the sign-in live as short.
  await until('it is refreshed', () => presentations(sandbox).length >= 1)
  await until('it is scheduled again', async () => (await store.queueLength()) === 1)

  const { PATH, HOME } = process.env
  const command = codeBlock('docs/deployment.md', 'From version 0.2', 'sh')
  execFileSync('sh', ['-c', command], { env: { PATH, HOME, REDIS_URL: redis.url } })
  t.equal(await redis.cli('keys', 'bff:due*'), 'bff:due', 'the printed command deletes the 16 keys')
})
