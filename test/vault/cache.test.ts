import t from 'tap'
import { createSessionCache, type SessionCache } from '../../src/vault/cache.ts'
import type { RecordKey } from '../../src/vault/store/record.ts'
import { heapUsed } from './store/heap.ts'
import { newKey } from './store/stores.ts'

interface Entry {
  token: string
}

/** A cache whose clock only the test moves, and a store whose replies the test gives. */
function make({ max = 100, trustMs = 1_000 } = {}) {
  let now = 5_000
  const cache = createSessionCache<Entry>({ max, trustMs, monotonic: () => now })
  /** The reads without a reply, in the order in which they were sent. */
  const sent: { reply: (text: string) => void; fail: (error: Error) => void }[] = []
  const read = (key: RecordKey, kind: 'state' | 'session' = 'state'): Promise<string> =>
    cache.read(key, {
      kind,
      send: () =>
        new Promise<string>((reply, fail) => {
          sent.push({ reply, fail })
        }),
      take: (text, sentAt) => `${text}, sent at ${sentAt}`,
    })
  return {
    cache,
    read,
    sent,
    pass(ms: number): void {
      now += ms
    },
  }
}

/** Runs everything that waits only for promises. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

function know(cache: SessionCache<Entry>, key: RecordKey, cookie: string, token = 'token'): Entry {
  const entry = { token }
  cache.noteCookie(cookie, key)
  cache.put(key, entry)
  return entry
}

t.test('each verified cookie of a session finds its one entry, and no other', async (t) => {
  const { cache } = make()
  const [key, other] = [newKey(), newKey()]
  const entry = know(cache, key, 'one')
  cache.noteCookie('two', key)
  const third = know(cache, other, 'three')
  t.equal(cache.get('one'), entry)
  t.equal(cache.get('two'), entry)
  t.equal(cache.get('three'), third)
  t.equal(cache.get('four'), null)
  t.strictSame([cache.keyOf('two'), cache.keyOf('four')], [key, null])
})

t.test('a dropped session is unknown by every cookie, which stay verified', async (t) => {
  const { cache } = make()
  const [key, other] = [newKey(), newKey()]
  know(cache, key, 'one')
  const entry = know(cache, other, 'two')
  cache.drop(key)
  t.strictSame([cache.get('one'), cache.known(key)], [null, null])
  t.equal(cache.keyOf('one'), key)
  t.equal(cache.get('two'), entry, 'and no other one')
})

t.test('concurrent reads of one session are one read', async (t) => {
  const { read, sent, pass } = make()
  const [key, other] = [newKey(), newKey()]
  const first = read(key)
  pass(600)
  const all = [first, read(key), read(key)]
  t.equal(sent.length, 1)
  const apart = [read(other), read(key, 'session')]
  t.equal(sent.length, 3, 'another session and another kind of read have their own')
  for (const { reply } of sent) reply('alive')
  t.strictSame(await Promise.all(all), Array(3).fill('alive, sent at 5000'))
  t.strictSame(await Promise.all(apart), Array(2).fill('alive, sent at 5600'))
  void read(key)
  t.equal(sent.length, 4, 'one that is over is not shared')
})

t.test('a read that was sent too long before a request came is not shared', async (t) => {
  const { read, sent, pass } = make()
  const key = newKey()
  const first = read(key)
  pass(1_000)
  const second = read(key)
  t.equal(sent.length, 2)
  sent[1]!.reply('second')
  sent[0]!.reply('first')
  t.equal(await first, 'first, sent at 5000', 'its own request came before it')
  t.equal(await second, 'second, sent at 6000')
})

t.test('with 0 a request waits for a read that was sent after the request came', async (t) => {
  const { read, sent, pass } = make({ trustMs: 0 })
  const key = newKey()
  const first = read(key)
  pass(1)
  const second = read(key)
  for (const [at, text] of ['alive', 'ended'].entries()) sent[at]!.reply(text)
  t.strictSame(await Promise.all([first, second]), ['alive, sent at 5000', 'ended, sent at 5001'])
})

t.test('a shared read whose reply comes too late is repeated', async (t) => {
  const { read, sent, pass } = make()
  const key = newKey()
  const first = read(key)
  pass(900)
  const second = read(key)
  t.equal(sent.length, 1)
  pass(100)
  sent[0]!.reply('alive')
  t.equal(await first, 'alive, sent at 5000')
  await settled()
  t.equal(sent.length, 2)
  sent[1]!.reply('ended')
  t.equal(await second, 'ended, sent at 6000')
})

t.test('a read that was sent before this replica changed the session proves nothing', async (t) => {
  const { cache, read, sent } = make()
  const [key, other] = [newKey(), newKey()]
  const [reading, unaffected] = [read(key), read(other)]
  cache.drop(key)
  const later = read(key)
  t.equal(sent.length, 3, 'and is not shared any more')
  sent[0]!.reply('before')
  sent[1]!.reply('other')
  t.equal(await unaffected, 'other, sent at 5000')
  await settled()
  t.equal(sent.length, 3, 'the first request waits for the later read')
  sent[2]!.reply('after')
  t.equal(await later, 'after, sent at 5000')
  t.equal(await reading, 'after, sent at 5000')
})

for (const [when, max] of [
  ['in the same turn as the reply', 100],
  ['after the session was forgotten', 1],
] as const) {
  t.test(`a change of the session ${when} still counts`, async (t) => {
    const { cache, read, sent } = make({ max })
    const key = newKey()
    const reading = read(key)
    if (max === 1) know(cache, newKey(), 'one')
    else sent[0]!.reply('before')
    cache.drop(key)
    sent[0]!.reply('before')
    await settled()
    t.equal(sent.length, 2)
    sent[1]!.reply('after')
    t.equal(await reading, 'after, sent at 5000')
  })
}

t.test('a read that fails fails for all who share it, and the next one is sent again', async (t) => {
  const { read, sent } = make()
  const key = newKey()
  const both = [read(key), read(key)]
  sent[0]!.fail(new Error('the store is down'))
  for (const one of both) await t.rejects(one, /the store is down/)
  const again = read(key)
  t.equal(sent.length, 2)
  sent[1]!.reply('alive')
  t.equal(await again, 'alive, sent at 5000')
})

t.test('at its size limit the cache forgets the session that was read least recently', async (t) => {
  const { cache, read, sent } = make({ max: 3 })
  const keys = [newKey(), newKey(), newKey(), newKey()]
  for (const [i, key] of keys.slice(0, 3).entries()) know(cache, key, `cookie-${i}`)
  void read(keys[0]!)
  know(cache, keys[3]!, 'cookie-3')
  const found = [0, 1, 2, 3].map((i) => cache.get(`cookie-${i}`) !== null)
  t.strictSame(found, [true, false, true, true])
  t.equal(cache.keyOf('cookie-1'), null)
  t.equal(sent.length, 1)
})

t.test('failed reads and forgotten sessions take no memory', async (t) => {
  const { cache, read, sent } = make()
  const before = heapUsed()
  for (let i = 0; i < 5_000; i++) {
    const reading = read(newKey())
    sent.pop()!.fail(new Error('down'))
    await reading.catch(() => {})
  }
  for (let i = 0; i < 25_000; i++) know(cache, newKey(), `cookie-${i}`)
  const grownBy = (heapUsed() - before) / 1_048_576
  t.ok(grownBy < 2, `the heap has grown by ${grownBy.toFixed(1)} MiB`)
  t.equal(cache.get('cookie-24999')?.token, 'token')
})
