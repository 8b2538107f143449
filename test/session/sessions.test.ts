import t from 'tap'
import { createKeyring } from '../../src/keyring.ts'
import { createLog } from '../../src/log.ts'
import { Secret } from '../../src/secret.ts'
import { createFindSession } from '../../src/session/find.ts'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import { createMovableClock } from '../helpers/clock.ts'
import { newKey, newRecord } from '../store/stores.ts'

const IDLE_MS = 60_000

t.test(
  'after trouble with the store a session that looks idle waits five seconds for late activity',
  async (t) => {
    const clock = createMovableClock()
    const memory = createMemoryStore({ now: clock.wall })
    t.teardown(() => memory.close())
    let messagesAreBack = (): void => {}
    let troubleAt = clock.monotonic()
    const store = {
      ...memory,
      msSinceTrouble: () => clock.monotonic() - troubleAt,
      onMessagesBack: (listener: () => void) => {
        messagesAreBack = listener
      },
    }
    const find = createFindSession({
      store,
      keyring: createKeyring([new Secret('a-secret-of-this-test-of-32-characters')]),
      unsaved: { get: () => null, hold() {}, size: () => 0, settled: async () => {} },
      recent: { get: () => null, note() {}, writeAgain: async () => {}, stop: async () => {} },
      idleMs: IDLE_MS,
      clock,
      log: createLog('silent'),
      onEnded() {},
      onOpened() {},
    })
    const idle = async (): Promise<string> => {
      const key = newKey()
      await memory.create(key, newRecord(clock.wall() - IDLE_MS), 'a', 15_000)
      await memory.confirm(key)
      return key
    }
    const begun = await idle()
    clock.pass(1)
    messagesAreBack()
    t.match(await find(begun), { kind: 'ended', reason: 'idle' }, 'the start of the process is no trouble')

    const key = await idle()
    clock.pass(10_000)
    troubleAt = clock.monotonic()
    t.match(await find(key), { kind: 'store_unavailable' }, 'neither served nor ended')
    clock.pass(5_000)
    t.match(await find(key), { kind: 'ended', reason: 'idle' })

    const other = await idle()
    messagesAreBack()
    t.match(await find(other), { kind: 'store_unavailable' }, 'when messages are back after a loss too')
    await memory.touch(other, 1_000)
    t.not((await find(other)).kind, 'store_unavailable', 'the activity has come')
  },
)
