import t from 'tap'
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
  const events = { stored() {}, deleted() {} }
  const servers = Array.from(
    { length: masterCount },
    (_, master) =>
      new RedisServer({ name: `master-${master}`, history: 'history', trueTime: () => clock, events }),
  )
  const transport: Transport = {
    masterCount,
    wall: () => clock,
    ask: async (master, _command, work) => work(servers[master]!),
    health: {
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
