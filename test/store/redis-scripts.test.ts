import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import t from 'tap'
import { defineScripts, type ScriptName } from '../../src/store/redis/scripts.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { callEveryMethod } from './every-method.ts'
import { newKey, openCommands, PREFIX, redisStore, singleTarget } from './stores.ts'

const FOLDER = fileURLToPath(new URL('../../src/store/redis/lua/', import.meta.url))
const LONG = 60_000
const PAUSE = 1_000
const OPEN = 90_000

const scripts = readdirSync(FOLDER).map((file) => {
  const lua = readFileSync(FOLDER + file, 'utf8')
  const lines = lua.split('\n')
  const head = lines.filter((line) => line.startsWith('--')).join('\n')
  const code = lines.filter((line) => !line.startsWith('--')).join('\n')
  const sha = createHash('sha1').update(lua).digest('hex')
  return { name: file.replace('.lua', '') as ScriptName, head, code, sha }
})

/** The distinct `KEYS[n]` or `ARGV[n]` of a text, as sorted numbers. */
function indexes(array: 'KEYS' | 'ARGV', text: string): number[] {
  const found = [...text.matchAll(new RegExp(`${array}\\[(\\d+)\\]`, 'g'))].map(([, index]) => Number(index))
  return [...new Set(found)].sort((a, b) => a - b)
}

t.test('the header of each script lists exactly the keys and arguments that the script uses', async (t) => {
  t.equal(scripts.length, 12)
  for (const { name, head, code } of scripts) {
    const keys = name === 'end-record' ? [1, 2] : [1]
    t.strictSame(indexes('KEYS', head), keys, name)
    t.strictSame(indexes('KEYS', code), keys, name)
    const documented = indexes('ARGV', head)
    t.strictSame(
      documented,
      documented.map((_, i) => i + 1),
      name,
    )
    // The arguments of this script repeat in pairs.
    if (name !== 'schedule') t.strictSame(indexes('ARGV', code), documented, name)
    t.match(head, /-- returns /, name)
  }
})

t.test('each command of each script uses its one key, or none', async (t) => {
  for (const { name, code } of scripts) {
    const calls = [...code.matchAll(/redis\.\w+\('(\w+)'(?:, ([^,)]+))?/g)]
    t.ok(calls.length > 0, name)
    for (const [, command, first] of calls) {
      if (['TIME', 'INFO'].includes(command ?? '')) continue
      t.match(first, /^KEYS\[[12]\]$/, `${name}: ${command}`)
    }
  }
})

t.test('the store passes each script the number of keys and arguments that it expects', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  // The first call loads the scripts. Later calls use their hash.
  await callEveryMethod(store)
  await redis.cli('config', 'set', 'slowlog-max-len', '1000')
  await redis.cli('config', 'set', 'slowlog-log-slower-than', '0')
  await callEveryMethod(store)
  await redis.cli('config', 'set', 'slowlog-log-slower-than', '-1')

  const calls = await evalshaCalls(redis)
  for (const { name, head, sha } of scripts) {
    const [call, ...more] = calls.filter((args) => args[0] === sha)
    t.ok(call, `${name} is called`)
    for (const args of [call ?? [], ...more]) {
      const keys = indexes('KEYS', head).length
      t.equal(args[1], String(keys), `${name}: keys`)
      for (const key of args.slice(2, 2 + keys)) t.ok(key.startsWith(PREFIX), `${name}: under the prefix`)
      const further = name === 'schedule' ? 1 : 0
      t.equal(args.length - 2 - keys, indexes('ARGV', head).length + further, `${name}: arguments`)
    }
  }
})

/** The arguments of each EVALSHA that the slow log holds. */
async function evalshaCalls({ url }: RedisServer): Promise<string[][]> {
  const client = new Redis(url)
  const log = (await client.slowlog('GET', 1_000)) as unknown[][]
  client.disconnect()
  return log
    .map((entry) => entry[3] as string[])
    .flatMap(([name, ...args]) => (/^evalsha$/i.test(name ?? '') ? [args] : []))
}

t.test('after SCRIPT FLUSH the scripts are loaded again, also with many concurrent callers', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  await callEveryMethod(store)
  await redis.cli('script', 'flush')
  await callEveryMethod(store)
  await redis.cli('script', 'flush')
  const nonces = Array.from({ length: 50 }, (_, i) => store.claimNonce(`nonce-${i}`, 'a', LONG))
  t.strictSame(new Set(await Promise.all(nonces)), new Set([true]))
})

t.test('each script returns each code that its header documents', async (t) => {
  const redis = await startRedis(t)
  const client = openCommands(t, singleTarget(redis.port))
  await new Promise((resolve) => client.once('ready', resolve))
  const run = defineScripts(client)
  const make = async (key: string): Promise<unknown> =>
    run('create-record', key, LONG, 'sealed-1', 1_000_000, 9e12, 'code', 'app', Date.now(), 5_000)
  const begin = async (key: string, gen: number, attempt: string, leaseMs: number, windowMs: number) => {
    const reply = await run('begin-refresh', key, gen, attempt, leaseMs, windowMs, PAUSE, OPEN, LONG)
    const [code, ...values] = reply as number[]
    // If the lease is granted, the age of the tokens is the last element.
    if (code === 1) t.ok(values.pop()! >= 0)
    return [code, ...values]
  }

  t.test('claim-nonce', async (t) => {
    const key = newKey()
    t.equal(await run('claim-nonce', key, 'a', LONG), 1)
    t.equal(await run('claim-nonce', key, 'a', LONG), 1)
    t.equal(await run('claim-nonce', key, 'b', LONG), 0)
  })

  t.test('create-record', async (t) => {
    const key = newKey()
    t.equal(await make(key), 1)
    t.equal(await make(key), 0)
  })

  t.test('confirm-record', async (t) => {
    const key = newKey()
    t.equal(await run('confirm-record', key, 9e12, LONG), 0)
    t.equal(await client.exists(key), 0)
    await make(key)
    t.equal(await run('confirm-record', key, 9e12, LONG), 1)
  })

  t.test('touch', async (t) => {
    const key = newKey()
    t.equal(await run('touch', key, 5_000, 9e12), 0, 'no record')
    await make(key)
    t.equal(await run('touch', key, 9e12, 9e12), 1)
  })

  t.test('begin-refresh', async (t) => {
    const key = newKey()
    t.strictSame(await begin(key, 1, 'a', LONG, 0), [0, 0], 'gone')
    await make(key)
    t.strictSame(await begin(key, 2, 'a', LONG, 0), [2, 0], 'replaced')
    t.strictSame(await begin(key, 1, 'a', LONG, LONG), [1, 0, 0], 'granted')
    const busy = (await begin(key, 1, 'b', LONG, 0)) as [number, number, number]
    t.equal(busy[0], 3, 'busy')
    t.ok(busy[1] > 0 && busy[1] <= LONG)
    t.ok(busy[2] >= 0 && busy[2] < 10_000, 'with its age')
    await run('release-lease', key, 'a', 1, LONG, 1)
    const backingOff = (await begin(key, 1, 'b', LONG, 0)) as [number, number]
    t.equal(backingOff[0], 4, 'backing off')
    t.ok(backingOff[1] > 0 && backingOff[1] <= LONG)
    await client.hset(key, 'retryAt', 0, 'forcedGen', 0)
    t.strictSame(await begin(key, 1, 'b', LONG, LONG), [5, 0], 'forced before')
    t.strictSame(await begin(key, 1, 'b', LONG, 0), [1, 1, 0], 'granted, one doubt before')
    await client.hset(key, 'leaseUntil', 0, 'history', 'another')
    t.strictSame(await begin(key, 1, 'c', LONG, 0), [6, PAUSE], 'paused')
    t.equal(((await begin(key, 1, 'd', LONG, 0)) as [number, number])[0], 6, 'for all')
    await client.hset(key, 'leaseUntil', 0)
    const [code, doubts, openForMs = 0] = (await begin(key, 1, 'e', LONG, 0)) as number[]
    t.strictSame([code, doubts], [1, 2])
    t.ok(
      openForMs > OPEN - 10_000 && openForMs <= OPEN,
      'the holder of the unreleased lease may still receive a response',
    )
  })

  t.test('begin-refresh after the clock stepped back by an hour', async (t) => {
    const key = newKey()
    await make(key)
    await begin(key, 1, 'a', LONG, 0)
    const anHourAhead = String(Date.now() + 3_600_000)
    await client.hset(key, 'leaseUntil', anHourAhead)
    const [busy, waitMs = 0] = (await begin(key, 1, 'b', LONG, 0)) as number[]
    t.equal(busy, 3)
    t.ok(waitMs <= LONG, 'the wait is at most one lease')
    t.ok(Number(await client.hget(key, 'leaseUntil')) < Date.now() + LONG + 5_000)
    await run('release-lease', key, 'a', 0, 1_000, 1)
    await client.hset(key, 'retryAt', anHourAhead, 'retrySetAt', anHourAhead)
    t.strictSame(await begin(key, 1, 'b', LONG, 0), [1, 0, 0], 'a back-off from before the step is ignored')
    await run('release-lease', key, 'b', 0, 1_000, 1)
    await client.hset(key, 'retryAt', anHourAhead)
    const [backingOff, backOffMs = 0] = (await begin(key, 1, 'c', LONG, 0)) as number[]
    t.equal(backingOff, 4)
    t.ok(backOffMs <= LONG && backOffMs > LONG - 5_000, 'and no back-off exceeds its maximum')
    await client.hset(key, 'retryAt', 0, 'forcedAt', anHourAhead, 'forcedGen', 0)
    t.strictSame(
      await begin(key, 1, 'c', LONG, LONG),
      [1, 0, 0],
      'a forced refresh in the future is ignored too',
    )
    await run('release-lease', key, 'c', 0, 0, 1)
    await client.hset(key, 'openUntil', anHourAhead)
    const [granted, , openForMs = 0] = (await begin(key, 1, 'd', LONG, 0)) as number[]
    t.strictSame([granted, openForMs], [1, OPEN], 'the wait for a response is limited')
    t.ok(Number(await client.hget(key, 'openUntil')) < Date.now() + OPEN + 5_000, 'from the first call on')
  })

  t.test('renew-lease', async (t) => {
    const key = newKey()
    const renew = (gen: number, attempt: string, doubts = 1) =>
      run('renew-lease', key, gen, attempt, doubts, LONG)
    t.equal(await renew(1, 'a'), -1, 'gone')
    await make(key)
    await begin(key, 1, 'a', 40, 0)
    t.equal(await renew(1, 'a'), 1)
    t.equal(((await begin(key, 1, 'b', LONG, 0)) as number[])[0], 3, 'the lease starts again in full')
    t.equal(await renew(1, 'b'), 0, 'the lease of another')
    t.equal(await renew(2, 'a'), 0, 'other tokens')
  })

  t.test('release-lease', async (t) => {
    const key = newKey()
    t.equal(await run('release-lease', key, 'a', 0, 0, 1), 0, 'no record')
    await make(key)
    t.equal(await run('release-lease', key, 'a', 0, 0, 1), 0, 'no lease')
    await begin(key, 1, 'a', LONG, 0)
    t.equal(await run('release-lease', key, 'b', 0, 0, 1), 0, 'the lease of another')
    t.equal(await run('release-lease', key, 'a', 0, 0, 1), 1)
    t.equal(await run('release-lease', key, 'c', 1, 0, 2), 0, 'of another generation')
    t.equal(await run('release-lease', key, 'c', 1, 0, 1), 2, 'its doubt was lost and is written again')
    t.equal(await run('release-lease', key, 'c', 1, 0, 1), 0, 'and is written once')
    t.equal(await client.exists(key), 1)
  })

  t.test('replace-tokens', async (t) => {
    const key = newKey()
    t.equal(await run('replace-tokens', key, 1, 'a', 'sealed-2'), -1)
    t.equal(await client.exists(key), 0)
    await make(key)
    t.equal(await run('replace-tokens', key, 1, 'a', 'sealed-2'), 1)
    t.equal(await run('replace-tokens', key, 1, 'a', 'sealed-2'), 2)
    t.equal(await run('replace-tokens', key, 1, 'b', 'other'), 0)
    t.equal(await run('replace-tokens', key, 2, 'b', 'sealed-3'), 1)
  })

  t.test('reseal-tokens', async (t) => {
    const key = newKey()
    t.equal(await run('reseal-tokens', key, 'sealed-1', 'resealed'), 0)
    t.equal(await client.exists(key), 0)
    await make(key)
    t.equal(await run('reseal-tokens', key, 'sealed-1', 'resealed'), 1)
    t.equal(await run('reseal-tokens', key, 'sealed-1', 'other'), 0)
    t.equal(await client.hget(key, 'tokens'), 'resealed')
  })

  t.test('end-record', async (t) => {
    const key = newKey()
    const why = `why:${key}`
    const end = (gen: number | string, reason: string, attempt = '', successor = '') =>
      run('end-record', [key, why], gen, reason, LONG, '', 0, attempt, successor)
    t.strictSame(await end('', 'idle'), [-1, ''])
    t.strictSame(await end('', 'replaced', '', 'ab12'), [-1, ''])
    t.strictSame(await end('', 'replaced', '', 'cd34'), [-1, 'ab12'], 'the first one stays')
    await client.del(why)
    await make(key)
    t.strictSame(await end(2, 'idle'), [0, ''])
    await begin(key, 1, 'a', LONG, 0)
    t.strictSame(await end(1, 'idle', 'b'), [0, ''], 'another attempt holds the lease')
    t.equal(await client.exists(why), 0, 'no reason is stored for a session that did not end')
    t.match(await end(1, 'idle', 'a'), [1, 'sealed-1', /^idle \d{13}$/])
    t.equal(await client.exists(key), 0)
    t.match(await client.get(why), /^idle \d{13}$/)
    const life = await client.pttl(why)
    t.ok(life > LONG - 10_000 && life <= LONG)
    await make(key)
    t.match(await end('', ''), [1, 'sealed-1', /^ \d{13}$/], 'without a reason')
    t.match(await client.get(why), /^idle \d{13}$/)
  })

  t.test('claim-due', async (t) => {
    const key = newKey()
    const [storeNow, nothing] = (await run('claim-due', key, LONG, 10)) as [number, number]
    t.ok(Math.abs(storeNow - Date.now()) < 5_000)
    t.equal(nothing, -1)
    await client.zadd(key, storeNow - 2_000, 'one', storeNow - 1_000, 'two', 9e12, 'far')
    const first = (await run('claim-due', key, LONG, 1)) as [number, number, string, number]
    t.equal(first[2], 'one')
    t.equal(first[3], first[0] - storeNow + 2_000)
    t.equal(first[1], 0)
    const [, next, ...due] = (await run('claim-due', key, LONG, 10)) as [number, number, ...string[]]
    t.equal(due[0], 'two')
    t.ok(next > 0 && next <= LONG)
    t.equal(await client.zcount(key, 0, '+inf'), 3)
    await client.zremrangebyscore(key, 0, '+inf')
    t.match(await run('claim-due', key, LONG, 1), [Number, -1])
    t.equal(await client.exists(key), 0, 'an empty queue keeps no clock')
  })

  t.test('schedule', async (t) => {
    const key = newKey()
    t.equal(await run('schedule', key, 'CH', 'one', 60_000), 1)
    const before = Number(await client.zscore(key, 'one'))
    t.equal(await run('schedule', key, 'NX', 'one', 0, 'two', 0), 1)
    t.equal(Number(await client.zscore(key, 'one')), before, 'an existing entry is unchanged')
    t.equal(await run('schedule', key, 'CH', 'one', 120_000), 1)
    t.ok(Number(await client.zscore(key, 'one')) > before)
    // A step of a scan may bring more than Lua can unpack.
    const many = Array.from({ length: 6_000 }, (_, at) => [`many-${at}`, 60_000]).flat()
    t.equal(await run('schedule', key, 'NX', ...many), 6_000)
  })
})
