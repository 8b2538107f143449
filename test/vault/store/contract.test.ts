import { randomUUID } from 'node:crypto'
import t from 'tap'
import type { RecordKey } from '../../../src/vault/store/record.ts'
import { startRedis } from '../../helpers/redis.ts'
import {
  leaseRequest,
  memoryStore,
  newKey,
  newRecord,
  redisStore,
  scan,
  singleTarget,
  startSession,
} from './stores.ts'

// What both stores promise besides the rules of a record (record-rules.test.ts) and of the due queue (queue.test.ts).

const LONG = 600_000

/** Of so many replicas at once exactly one may succeed. */
const NAMES = Array.from({ length: 50 }, (_, at) => `attempt-${at}`)
const ROUNDS = Array.from({ length: 20 }, (_, round) => round)

const redis = (async () => redisStore(t, singleTarget((await startRedis(t)).port)))()

for (const [name, opening] of Object.entries({ memory: memoryStore(t), Redis: redis })) {
  t.test(
    `${name}: a scan finds every record, confirmed or not, and none that ended or expired`,
    async (t) => {
      const made = await opening
      const { store, now, pass } = made
      await store.claimNonce('nonce', 'a', LONG)
      await store.countTry('sign-in:0000', LONG)
      await store.schedule(newKey(), LONG)
      t.strictSame(await scan(store), [], 'the store is empty')
      const keys: RecordKey[] = []
      // In parts: a command has a second, and those before it in the pipe count.
      while (keys.length < 2_500)
        keys.push(...(await Promise.all(Array.from({ length: 50 }, () => startSession(made)))))
      const [unconfirmed, dying] = [newKey(), newKey()]
      await store.create(unconfirmed, newRecord(now()), LONG)
      await store.create(dying, newRecord(now()), 200)
      await store.end(keys.pop()!)
      await pass(250)
      t.strictSame(await scan(store), [...keys, unconfirmed].sort())
    },
  )

  t.test(`${name}: sessions that have ended are found by the beginning of their key`, async (t) => {
    const { store, pass } = await opening
    const key = await startSession(await opening)
    const ended = async (beginning: string) => {
      const found: RecordKey[] = []
      for await (const batch of store.endedKeys(beginning)) found.push(...batch)
      return found
    }
    t.strictSame(await ended(key.slice(0, 12)), [], 'it lives')
    await store.end(key, { reason: 'logout' })
    t.strictSame(await ended(key.slice(0, 12)), [key])
    t.strictSame(await ended(key), [key])
    t.ok((await ended('')).includes(key))
    t.strictSame(await ended(`${key.slice(0, 11)}x`), [])
    await pass(1)
  })

  t.test(`${name}: records that end and begin during a scan do not disturb it`, async (t) => {
    const made = await opening
    const before = await scan(made.store)
    const ending = new Set(before.slice(0, 500))
    const found = new Set<RecordKey>()
    let turn = 0
    for await (const batch of made.store.keys()) {
      for (const key of batch) found.add(key)
      if (turn === 0) for (const key of ending) await made.store.end(key)
      else await startSession(made)
      turn += 1
    }
    t.strictSame(
      before.filter((key) => !ending.has(key) && !found.has(key)),
      [],
    )
  })

  t.test(
    `${name}: a nonce is claimed once; the same attempt may repeat its claim, which extends nothing`,
    async (t) => {
      const { store, pass } = await opening
      const nonce = randomUUID()
      t.equal(await store.claimNonce(nonce, 'a', 400), true)
      t.equal(await store.claimNonce(nonce, 'b', LONG), false)
      t.equal(await store.claimNonce(nonce, 'a', LONG), true)
      await pass(450)
      t.equal(await store.claimNonce(nonce, 'b', LONG), true)
    },
  )
}

t.test('of 50 callers at once exactly one claims a nonce', async (t) => {
  const { store } = await redis
  for (const round of ROUNDS) {
    const claims = await Promise.all(NAMES.map((name) => store.claimNonce(`nonce-${round}`, name, LONG)))
    t.equal(claims.filter((claimed) => claimed).length, 1)
  }
})

t.test('of 50 replicas at once exactly one refreshes a session', async (t) => {
  const made = await redis
  const { store } = made
  for (const _ of ROUNDS) {
    const key = await startSession(made)
    const begun = await Promise.all(NAMES.map((name) => store.beginRefresh(key, leaseRequest(name))))
    t.equal(begun.filter(({ kind }) => kind === 'granted').length, 1)
    t.equal((await store.read(key))?.doubts, 1)
    const resealed = await Promise.all(NAMES.map((name) => store.reseal(key, 'sealed-1', name)))
    t.equal(resealed.filter((done) => done).length, 1)
    const replaced = await Promise.all(NAMES.map((tokens) => store.replaceTokens(key, { gen: 1, tokens })))
    const winners = NAMES.filter((_, at) => replaced[at]!.kind === 'replaced')
    t.equal(winners.length, 1)
    t.match(await store.read(key), { gen: 2, tokens: winners[0]! })
  }
})

t.test('a logout wins over a refresh: whichever comes first, the session stays ended', async (t) => {
  const made = await redis
  const { store } = made
  for (const _ of ROUNDS) {
    const key = await startSession(made)
    const write = store.replaceTokens(key, { gen: 1, tokens: 'sealed-2' })
    const [replaced, ended] = await Promise.all([write, store.end(key)])
    const tokens = replaced.kind === 'replaced' ? 'sealed-2' : 'sealed-1'
    t.strictSame(ended, { kind: 'ended', tokens }, 'it returns the tokens of that time')
    t.equal(await store.read(key), null)
  }
})
