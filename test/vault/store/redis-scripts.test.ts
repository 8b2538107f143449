import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { startRedis } from '../../helpers/redis.ts'
import { callEveryMethod } from './every-method.ts'
import { newKey, PREFIX, redisStore, singleTarget } from './stores.ts'

const FOLDER = fileURLToPath(new URL('../../../src/vault/store/redis/lua/', import.meta.url))
const LONG = 60_000

const scripts = readdirSync(FOLDER).map((file) => {
  const lines = readFileSync(FOLDER + file, 'utf8').split('\n')
  const head = lines.filter((line) => line.startsWith('--')).join('\n')
  const code = lines.filter((line) => !line.startsWith('--')).join('\n')
  return { name: file.replace('.lua', ''), head, code }
})

/** The distinct `KEYS[n]` or `ARGV[n]` of a text, as sorted numbers. */
function indexes(array: 'KEYS' | 'ARGV', text: string): number[] {
  const found = [...text.matchAll(new RegExp(`${array}\\[(\\d+)\\]`, 'g'))].map(([, index]) => Number(index))
  return [...new Set(found)].sort((a, b) => a - b)
}

t.test('the header of each script lists exactly the keys and arguments that the script uses', async (t) => {
  t.equal(scripts.length, 7)
  for (const { name, head, code } of scripts) {
    const keys = name.startsWith('write') ? [1, 2] : [1]
    t.strictSame(indexes('KEYS', head), keys, name)
    t.strictSame(indexes('KEYS', code), keys, name)
    const documented = indexes('ARGV', head)
    t.strictSame(
      documented,
      documented.map((_, i) => i + 1),
      name,
    )
    // The arguments of these scripts repeat in pairs.
    if (!['schedule', 'write-hash'].includes(name)) t.strictSame(indexes('ARGV', code), documented, name)
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

t.test('a step of a scan may bring more sessions than Lua can unpack', async (t) => {
  const { store } = await redisStore(t, singleTarget((await startRedis(t)).port))
  const entries = Array.from({ length: 6_000 }, () => ({ key: newKey(), inMs: LONG }))
  t.equal(await store.scheduleMissing(entries), 6_000)
})

t.test('a further try does not extend its window, and a step of the clock back shortens it', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  const name = `${PREFIX}r:sign-in:0000`
  const count = async () => (await store.countTry('sign-in:0000', LONG))!
  t.strictSame(await count(), { count: 1, leftMs: LONG })
  await redis.cli('pexpire', name, String(LONG / 2))
  const second = await count()
  t.equal(second.count, 2)
  t.ok(second.leftMs > 0 && second.leftMs <= LONG / 2)
  await redis.cli('pexpire', name, '3600000')
  t.strictSame(await count(), { count: 3, leftMs: LONG })
  t.ok(Number(await redis.cli('pttl', name)) <= LONG)
})
