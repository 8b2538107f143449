import t from 'tap'
import { ONE_SERVER, redisStore, startSession } from './stores.ts'

for (const [name, start] of Object.entries(ONE_SERVER)) {
  for (const [when, onTheirWay] of Object.entries({ 'on their way': true, 'about to go': false })) {
    t.test(`${name}: a process that is held up takes the answers to commands ${when}`, async (t) => {
      const made = await redisStore(t, await start(t))
      const key = await startSession(made)
      const answers = Promise.all([made.store.read(key), made.store.ping()])
      if (onTheirWay) await new Promise((resolve) => setImmediate(resolve))
      const until = performance.now() + 1_500
      while (performance.now() < until);
      t.type((await answers)[0], 'object')
    })
  }
}
