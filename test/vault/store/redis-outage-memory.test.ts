import t from 'tap'
import { type RedisServer, startRedis } from '../../helpers/redis.ts'
import { heapUsed } from './heap.ts'
import { newKey, redisStore, singleTarget } from './stores.ts'

t.test('thousands of calls during an outage leak no memory', async (t) => {
  const outages: Record<string, (redis: RedisServer) => unknown> = {
    killed: (redis) => redis.kill(),
    frozen: (redis) => redis.pause(),
    full: (redis) => redis.cli('config', 'set', 'maxmemory', '1'),
    paused: (redis) => redis.cli('client', 'pause', '60000', 'all'),
  }
  for (const [name, begin] of Object.entries(outages)) {
    const redis = await startRedis(t)
    const { store } = await redisStore(t, singleTarget(redis.port))
    // The first failures allocate memory that stays, which is no leak.
    await begin(redis)
    const callMany = async (count: number): Promise<void> => {
      const key = newKey()
      const calls = Array.from({ length: count }, () => store.confirm(key))
      await Promise.allSettled(calls)
    }
    /** Makes two thousand calls. Some of their garbage is collected late, so the least heap on the way counts. */
    const leastHeap = async (): Promise<number> => {
      const sizes: number[] = []
      for (let round = 0; round < 4; round += 1) {
        await callMany(500)
        sizes.push(heapUsed())
      }
      return Math.min(...sizes)
    }
    await leastHeap()
    const before = await leastHeap()
    let grownBy = Number.POSITIVE_INFINITY
    // A leak grows with each call; what else stays weighs less and less.
    for (let calls = 2_000; grownBy >= 150 && calls <= 20_000; calls += 2_000)
      grownBy = ((await leastHeap()) - before) / calls
    t.ok(grownBy < 150, `${name}: the heap has grown by ${grownBy.toFixed()} bytes a call`)
    await store.close()
  }
})
