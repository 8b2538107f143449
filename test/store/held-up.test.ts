import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { clusterTarget, redisStore, singleTarget, startClusterOfOne, startSession } from './stores.ts'

const STORES = {
  'a single Redis': async () => singleTarget((await startRedis(t)).port),
  'a Cluster': async () => clusterTarget((await startClusterOfOne(t)).port),
}

for (const [name, start] of Object.entries(STORES)) {
  for (const [when, onTheirWay] of Object.entries({ 'on their way': true, 'about to go': false })) {
    t.test(`${name}: a process that is held up takes the answers to commands ${when}`, async (t) => {
      const made = await redisStore(t, await start())
      const key = await startSession(made)
      const answers = Promise.all([made.store.read(key), made.store.ping()])
      if (onTheirWay) await new Promise((resolve) => setImmediate(resolve))
      const until = performance.now() + 1_500
      while (performance.now() < until);
      t.type((await answers)[0], 'object')
    })
  }
}
