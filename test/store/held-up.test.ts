import t from 'tap'
import { ONE_SERVER, redisStore, startSession } from './stores.ts'

for (const [name, start] of Object.entries(ONE_SERVER)) {
  t.test(`a blocked process and ${name}`, async (t) => {
    const target = await start(t)
    for (const [when, onTheirWay, ms] of [
      // Longer than the timeout of a command.
      ['in flight', true, 1_100],
      ['not yet sent', false, 1_100],
      // Longer than the silence after which a connection is closed, as when the whole machine was suspended.
      ['in flight for long', true, 2_500],
      ['not yet sent for long', false, 2_500],
    ] as const) {
      await t.test(`the replies to commands ${when} are read when it resumes`, async (t) => {
        const made = await redisStore(t, target)
        const key = await startSession(made)
        const replies = Promise.all([made.store.read(key), made.store.ping()])
        if (onTheirWay) await new Promise((resolve) => setImmediate(resolve))
        // Blocks this thread, without using the processor that other tests need.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
        t.type((await replies)[0], 'object')
        t.type(await made.store.read(key), 'object', 'the connection stays open')
      })
    }
  })
}
