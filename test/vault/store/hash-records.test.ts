import { readFileSync } from 'node:fs'
import { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { createKeyring } from '../../../src/keyring.ts'
import { Secret } from '../../../src/secret.ts'
import { openTokens } from '../../../src/vault/session.ts'
import { startRedis } from '../../helpers/redis.ts'
import { leaseRequest, redisStore, singleTarget, startSession } from './stores.ts'

// Records that version 0.2 has written: hashes, with the tokens sealed as they are.

interface Recorded {
  readonly secret: string
  /** Epoch milliseconds: when they were written. */
  readonly now: number
  readonly records: Record<string, { key: string; fields: Record<string, string> }>
}

const RECORDED = JSON.parse(
  readFileSync(new URL('../../fixtures/records-0.2.json', import.meta.url), 'utf8'),
) as Recorded
const INSTANT = /At$|Until$/
/** What a replica of 0.2 reads, by HMGET. */
const READ = ['tokens', 'gen', 'createdAt', 'seenAt', 'endsAt', 'doubts', 'lease', 'leaseUntil', 'retryAt']

const keyring = createKeyring([new Secret(RECORDED.secret)])

/** A Redis with these records, as if version 0.2 had just written them. */
async function start(t: Test) {
  const redis = await startRedis(t)
  const client = new Redis({ port: redis.port, host: '127.0.0.1' })
  t.teardown(() => client.disconnect())
  const made = await redisStore(t, singleTarget(redis.port))
  const now = Date.now()
  // They were written some milliseconds after each other.
  const later = now - 1_000 - RECORDED.now
  const keys: Record<string, string> = {}
  const [history = ''] = /(?<=master_replid:)\w{8}/.exec(await client.info('replication'))!
  for (const [name, { key, fields }] of Object.entries(RECORDED.records)) {
    keys[name] = key
    for (const [field, base64] of Object.entries(fields)) {
      const value = Buffer.from(base64, 'base64')
      const isInstant = INSTANT.test(field) && Number(value) > 0
      await client.hset(`bff:s:${key}`, field, isInstant ? String(Number(value) + later) : value)
    }
    await client.hset(`bff:s:${key}`, 'history', history)
    await client.pexpire(`bff:s:${key}`, 7_200_000)
  }
  const kindOf = (name: string) => client.type(`bff:s:${keys[name]}`)
  const readOf02 = async (name: string) => await client.hmget(`bff:s:${keys[name]}`, ...READ)
  return { ...made, client, keys, kindOf, readOf02 }
}

t.test('a record of 0.2 is read, with its tokens', async (t) => {
  const { store, keys, now } = await start(t)
  for (const [name, key] of Object.entries(keys)) {
    const record = (await store.read(key))!
    t.equal(record.gen, 1, name)
    t.ok(Math.abs(record.createdAt - now()) < 60_000)
    t.equal((await store.readState(key))?.idleEndsAt, record.idleEndsAt)
    const { tokens } = openTokens(keyring, key, record.tokens)!
    t.equal(tokens.accessToken.reveal(), `access of ${name}`)
    t.strictSame(tokens.user, { id: '7', name: 'Ann' })
  }
  t.match(await store.read(keys['of another flow and client']!), { flow: 'password', client: 'ü "app" €' })
})

t.test('lease, doubt and back-off of a replica of 0.2 hold for this version', async (t) => {
  const { store, keys } = await start(t)
  t.match(await store.beginRefresh(keys.leased!, leaseRequest('b')), { kind: 'busy' })
  t.match(await store.beginRefresh(keys['backing off in doubt']!, leaseRequest('b')), { kind: 'backing_off' })
  t.match(await store.read(keys['backing off in doubt']!), { doubts: 1, lease: '' })
  t.equal(await store.renewLease(keys.leased!, { gen: 1, attempt: 'b', doubts: 1, leaseMs: 9 }), 'taken')
})

t.test('until it gets other tokens a replica of 0.2 can read the record; then it is one text', async (t) => {
  const { store, keys, client, kindOf, readOf02 } = await start(t)
  const key = keys['at rest']!
  t.equal(await store.touch(key), true)
  t.match(await store.beginRefresh(key, leaseRequest('b')), { kind: 'granted', doubts: 0 })
  t.equal(await kindOf('at rest'), 'hash')
  const [tokens, gen, createdAt, seenAt, endsAt, doubts, lease, leaseUntil, retryAt] =
    await readOf02('at rest')
  t.ok(tokens)
  t.strictSame([gen, doubts, lease, retryAt], ['1', '1', 'b', '0'])
  for (const instant of [createdAt, seenAt, endsAt, leaseUntil]) t.match(instant, /^\d{13}$/)
  t.ok((await client.pttl(`bff:s:${key}`)) > 7_200_000, 'activity has moved its expiry')

  t.match(await store.replaceTokens(key, { gen: 1, tokens: 'sealed-2' }), { kind: 'replaced', written: true })
  t.equal(await kindOf('at rest'), 'string')
  t.ok((await client.pttl(`bff:s:${key}`)) > 7_200_000, 'its expiry stays')
  t.match(await store.read(key), { gen: 2, tokens: 'sealed-2', doubts: 0, lease: '', client: 'app' })
  t.equal((await store.readState(key))?.gen, 2)
})

t.test('of two writers at once of a record of 0.2 one wins', async (t) => {
  const { store, keys } = await start(t)
  const names = Array.from({ length: 20 }, (_, at) => `attempt-${at}`)
  const key = keys['at rest']!
  const begun = await Promise.all(names.map((name) => store.beginRefresh(key, leaseRequest(name))))
  t.equal(begun.filter(({ kind }) => kind === 'granted').length, 1)
  const replaced = await Promise.all(names.map((tokens) => store.replaceTokens(key, { gen: 1, tokens })))
  t.equal(replaced.filter(({ kind }) => kind === 'replaced').length, 1)
})

t.test('a record of 0.2 ends with its reason', async (t) => {
  const { store, keys } = await start(t)
  for (const key of Object.values(keys)) {
    t.match(await store.end(key, { reason: 'logout' }), { kind: 'ended' })
    t.match(await store.readEnd(key), { reason: 'logout' })
    t.equal(await store.read(key), null)
  }
})

t.test('to a replica of 0.2 a record of this version is an error, which is 503, and not gone', async (t) => {
  const made = await start(t)
  const key = await startSession(made)
  await t.rejects(made.client.hmget(`bff:s:${key}`, ...READ), /WRONGTYPE/)
  await t.rejects(made.client.hset(`bff:s:${key}`, 'tokens', 'x'), /WRONGTYPE/)
  t.not(await made.store.read(key), null, 'and it changes nothing')
})
