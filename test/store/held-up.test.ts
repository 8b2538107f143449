import t from 'tap'
import { ONE_SERVER, redisStore, startSession } from './stores.ts'

for (const [name, start] of Object.entries(ONE_SERVER)) {
  for (const [when, onTheirWay, ms] of [
    ['in flight', true, 1_500],
    ['not yet sent', false, 1_500],
    // Longer than the silence after which a connection is closed, as when the whole machine was suspended.
    ['in flight for long', true, 3_000],
    ['not yet sent for long', false, 3_000],
  ] as const) {
    t.test(`${name}: a blocked process reads the replies to commands ${when} when it resumes`, async (t) => {
      const made = await redisStore(t, await start(t))
      const key = await startSession(made)
      const answers = Promise.all([made.store.read(key), made.store.ping()])
      if (onTheirWay) await new Promise((resolve) => setImmediate(resolve))
      // Blocks this thread, without using the processor that other tests need.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
      t.type((await answers)[0], 'object')
      t.type(await made.store.read(key), 'object', 'the connection stays open')
    })
  }
}
