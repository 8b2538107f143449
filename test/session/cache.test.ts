import t, { type Test } from 'tap'
import { createSessionCache, type SessionCache } from '../../src/session/cache.ts'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import type { RecordKey, SessionStore } from '../../src/store/store.ts'
import { heapUsed } from '../store/heap.ts'
import { IDLE_MS, newKey, newRecord } from '../store/stores.ts'

interface Entry {
  key: RecordKey
  token: string
}

interface Made {
  cache: SessionCache<Entry>
  /** Creates a session in the store. The store announces each later change of it to the cache. */
  session(): Promise<RecordKey>
  store: SessionStore
  /** Messages stop arriving, and listeners are called. */
  lose(): void
  /** Messages stop arriving, but no listener is called yet. */
  setUnproven(value: boolean): void
  /** Messages arrive again. */
  recover(): void
}

/** A cache over the memory store. The test controls whether change messages arrive. */
function make(t: Test, max = 100): Made {
  const memory = createMemoryStore({ now: Date.now, idleMs: IDLE_MS })
  t.teardown(() => memory.close())
  let isLive = true
  const listeners: ((live: boolean) => void)[] = []
  const health = {
    ...memory.health,
    isLive: () => isLive,
    onLive: (listener: (live: boolean) => void) => void listeners.push(listener),
  }
  const store: SessionStore = { ...memory, health }
  const setLive = (live: boolean): void => {
    isLive = live
    for (const listener of listeners) listener(live)
  }
  return {
    store,
    cache: createSessionCache<Entry>({ store, max }),
    async session() {
      const key = newKey()
      await store.create(key, newRecord(Date.now()), 15_000)
      return key
    },
    lose: () => setLive(false),
    recover: () => setLive(true),
    setUnproven(value) {
      isLive = !value
    },
  }
}

function keep(cache: SessionCache<Entry>, cookie: string, key: RecordKey, token = 'token'): Entry {
  const entry = { key, token }
  cache.put(cookie, entry, cache.beginRead(key))
  return entry
}

t.test('a cookie finds its own entry and no other', async (t) => {
  const { cache, session } = make(t)
  const entry = keep(cache, 'one', await session())
  t.equal(cache.get('one'), entry)
  t.equal(cache.get('other'), null)
})

t.test('each kind of change drops every cookie of its session, and those of no other', async (t) => {
  const { cache, session, store } = make(t)
  const changes: Record<string, (key: RecordKey) => Promise<unknown>> = {
    'new tokens': (key) => store.replaceTokens(key, { gen: 1, attempt: 'b', tokens: 'sealed-2' }),
    'a released lease': async (key) => {
      await store.beginRefresh(key, {
        gen: 1,
        attempt: 'b',
        leaseMs: 1_000,
        openMs: 0,
        livesMs: 0,
        forcedWindowMs: 0,
      })
      await store.releaseLease(key, { attempt: 'b', inDoubt: null, retryInMs: 0 })
    },
    'the end': (key) => store.end(key),
  }
  for (const [name, change] of Object.entries(changes)) {
    const [key, otherKey] = [await session(), await session()]
    keep(cache, 'one', key)
    keep(cache, 'two', key)
    const other = keep(cache, 'three', otherKey)
    await change(key)
    t.equal(cache.get('one'), null, name)
    t.equal(cache.get('two'), null, name)
    t.equal(cache.get('three'), other, name)
  }
})

t.test('drop() removes one session', async (t) => {
  const { cache, session } = make(t)
  const key = await session()
  keep(cache, 'one', key)
  cache.drop(key)
  t.equal(cache.get('one'), null)
})

t.test('a read is not cached if a change overtook it, and the next read is', async (t) => {
  const { cache, session, store } = make(t)
  const key = await session()
  const guard = cache.beginRead(key)
  await store.replaceTokens(key, { gen: 1, attempt: 'b', tokens: 'sealed-2' })
  cache.put('one', { key, token: 'old' }, guard)
  t.equal(cache.get('one'), null)
  const entry = keep(cache, 'one', key, 'new')
  t.equal(cache.get('one'), entry)
})

t.test('a change invalidates a read that began before it, and not one that began after', async (t) => {
  const { cache, session, store } = make(t)
  const key = await session()
  const early = cache.beginRead(key)
  await store.replaceTokens(key, { gen: 1, attempt: 'b', tokens: 'sealed-2' })
  const late = cache.beginRead(key)
  const entry = { key, token: 'new' }
  cache.put('one', entry, late)
  cache.put('two', { key, token: 'old' }, early)
  t.equal(cache.get('one'), entry)
  t.equal(cache.get('two'), null)
})

t.test('a change of another session invalidates no read', async (t) => {
  const { cache, session, store } = make(t)
  const [key, other] = [await session(), await session()]
  const guard = cache.beginRead(key)
  await store.end(other)
  const entry = { key, token: 'token' }
  cache.put('one', entry, guard)
  t.equal(cache.get('one'), entry)
})

t.test('more changes than the cache remembers invalidate every read that began before them', async (t) => {
  const { cache, session } = make(t)
  const key = await session()
  const guard = cache.beginRead(key)
  cache.drop(key)
  for (let i = 0; i < 30_000; i++) cache.drop(newKey())
  cache.put('one', { key, token: 'old' }, guard)
  t.equal(cache.get('one'), null)
  const entry = keep(cache, 'one', key)
  t.equal(cache.get('one'), entry)
})

t.test('a loss of messages empties the cache and invalidates the reads under way', async (t) => {
  const { cache, session, lose, recover } = make(t)
  const key = await session()
  keep(cache, 'one', key)
  const guard = cache.beginRead(key)
  lose()
  recover()
  t.equal(cache.get('one'), null)
  cache.put('two', { key, token: 'token' }, guard)
  t.equal(cache.get('two'), null)
  const entry = keep(cache, 'three', key)
  t.equal(cache.get('three'), entry, 'a later read is cached')
})

t.test('while messages do not arrive the cache returns nothing and keeps no read', async (t) => {
  const { cache, session, setUnproven } = make(t)
  const [key, other] = [await session(), await session()]
  keep(cache, 'one', key)
  setUnproven(true)
  t.equal(cache.get('one'), null)
  const guard = cache.beginRead(other)
  setUnproven(false)
  cache.put('two', { key: other, token: 'token' }, guard)
  t.equal(cache.get('two'), null)
})

t.test('the cache evicts the oldest entry at its size limit', async (t) => {
  const { cache, session } = make(t, 3)
  const keys = [await session(), await session(), await session(), await session()]
  for (const [i, key] of keys.slice(0, 3).entries()) keep(cache, `cookie-${i}`, key)
  cache.get('cookie-0')
  keep(cache, 'cookie-1', keys[1]!)
  keep(cache, 'cookie-3', keys[3]!)
  const found = [0, 1, 2, 3].map((i) => cache.get(`cookie-${i}`) !== null)
  t.strictSame(found, [false, true, true, true])
})

t.test('a cookie that is put again finds the newest entry, of the same session or another', async (t) => {
  const { cache, session } = make(t)
  const [first, second] = [await session(), await session()]
  keep(cache, 'one', first)
  keep(cache, 'one', first, 'newer')
  t.equal(cache.get('one')?.token, 'newer')
  cache.drop(first)
  t.equal(cache.get('one'), null, 'its session still finds it')
  keep(cache, 'one', first)
  const entry = keep(cache, 'one', second)
  cache.drop(first)
  t.equal(cache.get('one'), entry)
  cache.drop(second)
  t.equal(cache.get('one'), null)
})

t.test('failed reads and evicted cookies take no memory', async (t) => {
  const { cache } = make(t)
  const before = heapUsed()
  for (let i = 0; i < 100_000; i++) cache.beginRead(newKey())
  for (let i = 0; i < 100_000; i++) keep(cache, `cookie-${i}`, newKey())
  const grownBy = (heapUsed() - before) / 1_048_576
  t.ok(grownBy < 8, `the heap has grown by ${grownBy.toFixed(1)} MiB`)
  t.equal(cache.get('cookie-99999')?.token, 'token')
})
