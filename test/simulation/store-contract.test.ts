import t from 'tap'
import type { RecordKey } from '../../src/store/store.ts'
import { storeContract } from '../store/contract.ts'
import { IDLE_MS, type TestStore } from '../store/stores.ts'
import { RedisServer } from './simulated-redis.ts'
import { createSimulatedStore, type Transport } from './simulated-store.ts'

t.test('one simulated Redis passes the store contract', async (t) => {
  await storeContract(t, async () => directStore(1))
})

t.test('three simulated masters of a Cluster pass the store contract', async (t) => {
  await storeContract(t, async () => directStore(3))
})

/** A store without network delay, whose clock only the test moves. */
function directStore(masterCount: number): TestStore {
  let clock = 1_800_000_000_000
  const listeners: ((key: RecordKey) => void)[] = []
  const announceHere = (key: RecordKey): void => {
    for (const listener of listeners) listener(key)
  }
  const events = {
    published: (_: RedisServer, key: RecordKey) => announceHere(key),
    stored() {},
    deleted() {},
  }
  const servers = Array.from(
    { length: masterCount },
    (_, master) =>
      new RedisServer({ name: `master-${master}`, history: 'history', trueTime: () => clock, events }),
  )
  const transport: Transport = {
    masterCount,
    wall: () => clock,
    ask: async (master, _command, work) => work(servers[master]!),
    announceHere,
    onChange: (listener) => void listeners.push(listener),
    health: {
      isLive: () => true,
      onLive() {},
      isUnreached: () => false,
      onIncident() {},
      msSinceIncident: () => Number.POSITIVE_INFINITY,
    },
    async close() {},
  }
  return {
    store: createSimulatedStore(transport, IDLE_MS),
    now: () => clock,
    async pass(ms) {
      clock += ms
    },
  }
}
