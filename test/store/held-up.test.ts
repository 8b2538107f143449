import t from 'tap'
import { ONE_SERVER, redisStore, startSession, type TestStore } from './stores.ts'

const targets = Promise.all(
  Object.entries(ONE_SERVER).map(async ([name, start]) => ({ name, target: await start(t) })),
)

for (const [longer, ms] of [
  ['than the timeout of a command', 1_100],
  // As when the whole machine was suspended.
  ['than the silence after which a connection is closed', 2_500],
] as const) {
  t.test(`a process that is blocked for longer ${longer} reads the replies when it resumes`, async (t) => {
    const asked: { what: string; made: TestStore; inFlight: boolean; key: string }[] = []
    for (const { name, target } of await targets) {
      for (const inFlight of [true, false]) {
        const made = await redisStore(t, target)
        const what = `${name}, commands ${inFlight ? 'in flight' : 'not yet sent'}`
        asked.push({ what, made, inFlight, key: await startSession(made) })
      }
    }
    const ask = ({ made, key }: (typeof asked)[number]) =>
      Promise.all([made.store.read(key), made.store.ping()])

    // All in one block, because it takes its time only once.
    const inFlight = asked.filter((one) => one.inFlight).map((one) => ({ ...one, replies: ask(one) }))
    await new Promise((resolve) => setImmediate(resolve))
    const unsent = asked.filter((one) => !one.inFlight).map((one) => ({ ...one, replies: ask(one) }))
    // Blocks this thread, without using the processor that other tests need.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
    const checks = [...inFlight, ...unsent].map(async ({ what, made, key, replies }) => {
      t.match((await replies)[0], { gen: 1 }, what)
      t.match(await made.store.read(key), { gen: 1 }, `${what}: the connection stays open`)
    })
    await Promise.all(checks)
  })
}
