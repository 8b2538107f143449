import t from 'tap'
import type { RedisTarget } from '../../../src/config/redis-url.ts'
import { LAST_STEP_MS } from '../../../src/vault/store/redis/command-timeout.ts'
import { redisCommand } from '../../helpers/redis-command.ts'
import { holdUp } from '../../helpers/wait.ts'
import { ONE_SERVER, redisStore, startSession, type TestStore } from './stores.ts'

const targets = Promise.all(
  Object.entries(ONE_SERVER).map(async ([name, start]) => ({ name, target: await start(t) })),
)

/** Whether Redis itself takes most of the time that a reply has after the process resumes. */
async function isSlow(target: RedisTarget): Promise<boolean> {
  const { port } =
    target.kind === 'cluster' ? target.nodes[0]! : (target as { address: { port: number } }).address
  const askedAt = performance.now()
  await redisCommand(port, ['PING'])
  return performance.now() - askedAt > LAST_STEP_MS / 2
}

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
      Promise.allSettled([made.store.read(key), made.store.ping()])

    for (let isOver = false; !isOver; ) {
      // All in one block, because it takes its time only once.
      const inFlight = asked.filter((one) => one.inFlight).map((one) => ({ ...one, replies: ask(one) }))
      await new Promise((resolve) => setImmediate(resolve))
      const unsent = asked.filter((one) => !one.inFlight).map((one) => ({ ...one, replies: ask(one) }))
      holdUp(ms)
      const slow = Promise.all((await targets).map(({ target }) => isSlow(target)))
      const replied = await Promise.all([...inFlight, ...unsent].map(({ replies }) => replies))
      const isSure = !(await slow).includes(true)
      isOver = isSure || replied.flat().every(({ status }) => status === 'fulfilled')
      // What was in flight has its reply in the socket, however slow Redis is.
      const toCheck = isOver ? replied : replied.slice(0, inFlight.length)
      const fulfilled = { status: 'fulfilled' } as const
      for (const [at, replies] of toCheck.entries())
        t.match(replies, [{ ...fulfilled, value: { gen: 1 } }, fulfilled], [...inFlight, ...unsent][at]!.what)
    }
    for (const { what, made, key } of asked)
      t.match(await made.store.read(key), { gen: 1 }, `${what}: the connection stays open`)
  })
}
