import { execFileSync } from 'node:child_process'
import { randomBytes, randomUUID } from 'node:crypto'
import { Redis } from 'ioredis'
import t from 'tap'
import { createSessionCookies, recordKeyOf } from '../../../src/http/cookies.ts'
import { createKeyring } from '../../../src/keyring.ts'
import { Secret } from '../../../src/secret.ts'
import { openTokens, sealTokens } from '../../../src/vault/session.ts'
import { RECORD_SLACK_MS } from '../../../src/vault/store/record.ts'
import { codeBlock } from '../../helpers/documentation.ts'
import { type RedisServer, startRedis } from '../../helpers/redis.ts'
import { everyMethod } from './every-method.ts'
import { IDLE_MS, leaseRequest, newKey, newRecord, redisStore, singleTarget, startSession } from './stores.ts'

async function keysOf(redis: RedisServer): Promise<string[]> {
  return (await redis.cli('keys', '*')).split('\n').filter((key) => key !== '')
}

/** The whole value of a key, in plain text. */
async function textOf(redis: RedisServer, key: string): Promise<string> {
  const type = await redis.cli('type', key)
  const client = new Redis({ port: redis.port, host: '127.0.0.1' })
  // Sealed tokens are bytes.
  const value = type === 'string' ? await client.getBuffer(key) : null
  client.disconnect()
  if (value !== null) return value.toString('latin1')
  if (type === 'zset') return await redis.cli('zrange', key, '0', '-1', 'withscores')
  return ''
}

t.test('after any method every key has the prefix, and an expiry unless it is a due queue', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port), { prefix: 'app:{1}:' })
  const key = newKey()
  const seen = new Set<string>()
  for (const [name, call] of Object.entries(everyMethod(store, key))) {
    await call()
    for (const one of await keysOf(redis)) {
      seen.add(one)
      t.ok(one.startsWith('app:{1}:'), `${name}: ${one}`)
      const life = Number(await redis.cli('pttl', one))
      if (one.endsWith(':due')) t.equal(life, -1)
      else t.ok(life > 0 && life <= IDLE_MS + RECORD_SLACK_MS, `${name}: ${one} lives ${life} ms`)
    }
  }
  const kinds = [...seen].map((one) => one.slice('app:{1}:'.length).replace(/:.*/, ''))
  t.strictSame(new Set(kinds), new Set(['s', 'e', 'n', 'r', 'due', 'ping']))
})

t.test('a bound session needs at most 130 bytes more than another', async (t) => {
  const redis = await startRedis(t)
  const { store, now } = await redisStore(t, singleTarget(redis.port))
  const device = randomBytes(66).toString('base64url').slice(0, 86)
  const sizes = Array.from({ length: 64 }, (_, at) => 600 + at * 16)
  const more = { value: 0, memory: 0 }
  for (const size of sizes) {
    const key = newKey()
    await store.create(key, newRecord(now(), { tokens: 'x'.repeat(size) }), 15_000)
    await store.confirm(key)
    const bytes = async () => ({
      value: Number(await redis.cli('strlen', `bff:s:${key}`)),
      memory: Number(await redis.cli('memory', 'usage', `bff:s:${key}`)),
    })
    const before = await bytes()
    await store.registerDevice(key, device)
    await store.bindDevice(key, device)
    const after = await bytes()
    more.value += (after.value - before.value) / sizes.length
    more.memory += (after.memory - before.memory) / sizes.length
  }
  t.ok(more.value > 86 && more.value <= 130, `${more.value} bytes`)
  // Redis rounds the size of each value up, so this is a mean.
  t.ok(more.memory <= 130, `${more.memory} bytes of memory`)
})

t.test('a claim removes what is in the due queue and is no session', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  const key = newKey()
  await store.schedule(key, 0)
  await redis.cli('zadd', 'bff:due', '1', 'garbage!', '2', 'x')
  const { entries } = await store.claimDue(10, 60_000)
  t.strictSame(
    entries.map((entry) => entry.key),
    [key],
  )
  t.equal(await store.queueLength(), 1)
})

t.test('the printed command deletes the 16 keys of the due queue of version 0.2, and no other', async (t) => {
  const redis = await startRedis(t)
  for (const key of ['bff:due', ...Array.from('0123456789abcdef', (shard) => `bff:due:{${shard}}`)])
    await redis.cli('zadd', key, '1', newKey())
  const { PATH, HOME } = process.env
  const command = codeBlock('docs/deployment.md', 'From version 0.2', 'sh')
  execFileSync('sh', ['-c', command], { env: { PATH, HOME, REDIS_URL: redis.url } })
  t.strictSame(await keysOf(redis), ['bff:due'])
})

t.test('a record at rest is one text of little more than its sealed tokens', async (t) => {
  const redis = await startRedis(t)
  const made = await redisStore(t, singleTarget(redis.port))
  const key = await startSession(made)
  const size = async () => Number(await redis.cli('strlen', `bff:s:${key}`))
  const atFirst = await size()
  t.ok(atFirst < 140, `${atFirst} bytes as after a sign-in`)
  await made.store.touch(key)
  await made.store.beginRefresh(key, leaseRequest('a'))
  await made.store.replaceTokens(key, { gen: 1, tokens: 'sealed-2' })
  t.equal(await size(), atFirst, 'as after a refresh')
})

t.test('activity is written in place: the tokens are not sent to Redis again', async (t) => {
  const redis = await startRedis(t)
  const made = await redisStore(t, singleTarget(redis.port))
  const key = await startSession(made, { tokens: 'x'.repeat(2_000) })
  await made.store.touch(key)
  await redis.cli('config', 'resetstat')
  await made.store.touch(key)
  t.match(await redis.cli('info', 'commandstats'), /cmdstat_setrange:calls=1/)
  t.notMatch(await redis.cli('info', 'commandstats'), /cmdstat_set:/)
})

t.test('a record whose facts are long is read as any other', async (t) => {
  const made = await redisStore(t, singleTarget((await startRedis(t)).port))
  const client = 'ü"'.repeat(300)
  const key = await startSession(made, { client })
  t.match(await made.store.readState(key), { gen: 1 })
  t.match(await made.store.read(key), { client, tokens: 'sealed-1' })
})

t.test('Redis holds no readable token, session id, cookie value or nonce', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  const keyring = createKeyring([new Secret('a-secret-of-at-least-32-characters')])
  const cookies = createSessionCookies({ keyring, publicUrl: 'https://app.example', secure: true })
  const sessionId = cookies.newSessionId()
  const key = recordKeyOf(sessionId)
  const nonce = randomUUID()
  const accessToken = `access-${randomBytes(24).toString('hex')}`
  const refreshToken = `refresh-${randomBytes(24).toString('hex')}`
  const sealed = sealTokens(keyring, key, {
    accessToken: new Secret(accessToken),
    refreshToken: new Secret(refreshToken),
    expiresAt: Date.now() + 3_600_000,
    lifeSeconds: 3_600,
  })

  await store.claimNonce(nonce, 'a', 600_000)
  await store.schedule(key, 60_000)
  await store.create(key, { ...newRecord(Date.now()), tokens: sealed }, 15_000)
  await store.confirm(key)
  await store.beginRefresh(key, leaseRequest('b'))

  const names = await keysOf(redis)
  const texts = await Promise.all(names.map((name) => textOf(redis, name)))
  const dump = [...names, ...texts].join('\n')
  t.match(dump, key, 'the dump contains the record')
  t.ok(dump.includes(sealed), 'and its sealed tokens')
  const cookie = cookies.sign(sessionId)
  const secrets = { accessToken, refreshToken, sessionId, cookie, signature: cookie.slice(44), nonce }
  for (const [name, secret] of Object.entries(secrets)) {
    for (const encoding of ['utf8', 'base64', 'base64url', 'hex'] as const) {
      t.notOk(dump.includes(Buffer.from(secret).toString(encoding)), `${name} as ${encoding}`)
    }
  }

  t.equal(openTokens(keyring, key, sealed)?.tokens.accessToken.reveal(), accessToken)
  t.equal(openTokens(keyring, newKey(), sealed), null, 'sealed tokens do not open under another record key')
})
