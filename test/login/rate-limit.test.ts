import { MessageChannel } from 'node:worker_threads'
import t from 'tap'
import { createKeyring } from '../../src/keyring.ts'
import { createRateLimit } from '../../src/login/rate-limit.ts'
import { Secret } from '../../src/secret.ts'
import type { Vault } from '../../src/vault/vault.ts'
import { startRedis } from '../helpers/redis.ts'
import { startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { watchLateness } from '../helpers/wait.ts'
import { ask, field, portOf, problemOf, type Question } from '../http/wire.ts'
import { ALICE, sendPassword } from './sign-ins.ts'

type Options = Parameters<typeof createRateLimit>[0]

const ALONE: Pick<Vault, 'countTry'> = { countTry: async () => null }
const LIMITED = { code: 'rate_limited', status: 429 }

function limitOf(options: Partial<Options>) {
  return createRateLimit({
    kind: 'sign-in',
    perMinute: 3,
    vault: ALONE,
    keyring: createKeyring([new Secret('a secret of at least 32 characters')]),
    clock: { monotonic: () => 0 },
    ...options,
  })
}

/** A store that shows its calls, and replies when the test says so. */
function heldStore() {
  const calls: { bucket: string; reply: (value: { count: number; leftMs: number }) => void }[] = []
  const store: Pick<Vault, 'countTry'> = {
    countTry: (bucket) => new Promise((resolve) => void calls.push({ bucket, reply: resolve })),
  }
  return { calls, store }
}

t.test('the limit counts each client by itself and names the seconds to wait', async (t) => {
  let at = 1_000_000
  const count = limitOf({ clock: { monotonic: () => at } })
  for (let attempt = 0; attempt < 3; attempt += 1) await count('192.0.2.1')
  at += 20_000
  await t.rejects(count('192.0.2.1'), { ...LIMITED, headers: { 'retry-after': '40' } })
  await t.resolves(count('192.0.2.2'), 'another client is not held back')
  at += 40_000
  await t.resolves(count('192.0.2.1'), 'a new minute')
})

t.test('a flood of clients keeps at most 65,536 counts, and makes the limit forget nobody', async (t) => {
  const buckets = new Set<string>()
  const store: Pick<Vault, 'countTry'> = {
    async countTry(bucket) {
      buckets.add(bucket)
      return null
    },
  }
  const count = limitOf({ perMinute: 100, vault: store })
  for (let attempt = 0; attempt < 100; attempt += 1) await count('busy')
  await Promise.all(Array.from({ length: 2_000 }, (_, client) => count(`192.0.2.${client}`)))
  await t.rejects(count('busy'), LIMITED)
  t.ok(buckets.size > 1_900)
  t.strictSame(
    [...buckets].filter((bucket) => !/^sign-in:[0-9a-f]{4}$/.test(bucket)),
    [],
    'four digits, and no names',
  )
})

t.test('the store has the last word, and is not asked again for a client above the limit', async (t) => {
  const { calls, store } = heldStore()
  const count = limitOf({ vault: store })
  const fourth = count('192.0.2.1')
  calls[0]!.reply({ count: 4, leftMs: 12_345 })
  await t.rejects(fourth, { ...LIMITED, headers: { 'retry-after': '13' } }, 'three in other processes')
  await t.rejects(count('192.0.2.1'), LIMITED)
  t.equal(calls.length, 1)

  const elsewhere = count('192.0.2.2')
  calls[1]!.reply({ count: 3, leftMs: 60_000 })
  await t.resolves(elsewhere, 'the third of all processes')
})

t.test('a store that is slow or away refuses nobody, and a late reply counts', async (t) => {
  const { calls, store } = heldStore()
  const count = limitOf({ vault: store })
  await t.resolves(count('192.0.2.1'))
  calls[0]!.reply({ count: 3, leftMs: 60_000 })
  await Promise.resolve()
  await t.rejects(count('192.0.2.1'), LIMITED, 'two in other processes')

  for (let attempt = 0; attempt < 3; attempt += 1) await t.resolves(count('192.0.2.2'))
  calls[1]!.reply({ count: 1, leftMs: 60_000 })
  await Promise.resolve()
  await t.rejects(count('192.0.2.2'), LIMITED, 'the reply to the first says nothing of the other two')

  const broken = limitOf({ vault: { countTry: () => Promise.reject(new Error('away')) } })
  for (let attempt = 0; attempt < 3; attempt += 1) await t.resolves(broken('192.0.2.1'))
  await t.rejects(broken('192.0.2.1'), LIMITED)
})

t.test('a reply that came in time counts although the process was held up', async (t) => {
  const { port1, port2 } = new MessageChannel()
  t.teardown(() => port1.close())
  const store: Pick<Vault, 'countTry'> = {
    countTry: () =>
      new Promise((resolve) => {
        port2.once('message', resolve)
        port1.postMessage({ count: 4, leftMs: 60_000 })
      }),
  }
  const counted = limitOf({ vault: store })('192.0.2.1')
  const startedAt = performance.now()
  while (performance.now() - startedAt < 60);
  await t.rejects(counted, LIMITED)
})

const MANY = 20

/** Asks until the sign-in is refused; returns how many were not. A busy machine may reply too late to some. */
async function permitted(port: number): Promise<number> {
  for (let begun = 0; begun <= MANY; begun += 1) {
    const { status } = await ask(port, { target: '/auth/login' })
    if (status === 429) return begun
    if (status !== 303) throw new Error(`status ${status}`)
  }
  throw new Error(`more than ${MANY}`)
}

const PASSWORD_KEYS = ['address', 'name-address', 'username'].map((kind) => `bff:r:password-${kind}`)

t.test('replicas share the limits through Redis without names, or limit alone', async (t) => {
  const sandbox = await startSandbox(t)
  const redis = await startRedis(t)
  const env = { REDIS_URL: redis.url, LOGIN_RATE_PER_MINUTE: String(MANY), OAUTH_FLOWS: 'code,password' }
  const [one, other, third] = await Promise.all([1, 2, 3].map(() => startBff(t, sandbox, env)))
  await Promise.all([one!, other!, third!].map(untilReady))
  t.equal(await permitted(portOf(one!)), MANY)
  const more = await permitted(portOf(other!))
  t.ok(more <= MANY / 4, `${more} more on the other replica`)

  const statuses: number[] = []
  for (let attempt = 0; attempt < 9; attempt += 1) {
    const browser = (attempt % 2 === 0 ? one : other)!.browser()
    statuses.push((await sendPassword(browser, { ...ALICE, password: 'wrong' })).status)
  }
  const tried = statuses.filter((status) => status === 401).length
  t.ok(tried >= 5 && tried <= 7, `${statuses}`)

  const keys = (await redis.cli('keys', 'bff:r:*')).split('\n')
  t.strictSame(
    [...new Set(keys.map((key) => key.replace(/:[0-9a-f]{4}$/, '')))].sort(),
    [...PASSWORD_KEYS, 'bff:r:sign-in'],
    'without names',
  )
  for (const key of keys) {
    const life = Number(await redis.cli('pttl', key))
    t.ok(life > 0 && life <= 60_000, `${key} lives ${life} ms`)
  }

  redis.pause()
  t.teardown(() => redis.resume())
  const [startedAt, endWatch] = [performance.now(), watchLateness()]
  t.equal(await permitted(portOf(third!)), MANY, 'Redis hangs')
  t.ok(performance.now() - startedAt - endWatch().lateMs < MANY * 500, 'far less than a command timeout each')
})

t.test('too many sign-ins in a minute get 429 with Retry-After', async (t) => {
  const bff = await startBff(t, await startSandbox(t), { LOGIN_RATE_PER_MINUTE: '3' })
  const port = portOf(bff)
  const start = (question: Question = {}) => ask(port, { target: '/auth/login', ...question })
  for (let i = 0; i < 3; i += 1) t.equal((await start()).status, 303)
  const answer = await start()
  t.match(problemOf(answer), { code: 'rate_limited', status: 429 })
  const seconds = Number(field(answer, 'retry-after'))
  t.ok(seconds >= 1 && seconds <= 60, `${seconds} s`)
  t.notOk(answer.headers.has('set-cookie'))
  t.equal((await start({ target: '/auth/login?returnTo=//x' })).status, 429, 'before the query is looked at')
  t.equal((await start({ headers: [['Sec-Fetch-Mode', 'cors']] })).status, 403, 'after the origin')
  t.equal((await start({ method: 'POST' })).status, 405, 'after the method')
  t.equal((await ask(port, { target: '/auth/session' })).status, 200, 'other routes are not limited')
})

t.test('clients are counted by the address that a trusted proxy names', async (t) => {
  const sandbox = await startSandbox(t)
  const from = (port: number, address: string) =>
    ask(port, { target: '/auth/login', headers: [['X-Forwarded-For', address]] })
  const behind = portOf(await startBff(t, sandbox, { LOGIN_RATE_PER_MINUTE: '1', TRUST_PROXY: '127.0.0.1' }))
  t.equal((await from(behind, '203.0.113.1')).status, 303)
  t.equal((await from(behind, '203.0.113.2')).status, 303)
  t.equal((await from(behind, '203.0.113.1')).status, 429)
  t.equal(
    (await from(behind, '198.51.100.9, 203.0.113.1')).status,
    429,
    'the entry that the client wrote is ignored',
  )
  t.equal((await from(behind, '2001:db8:1:2:3::4')).status, 303)
  t.equal((await from(behind, '2001:db8:1:2:ffff::1')).status, 429, 'one household')
  t.equal((await from(behind, '2001:db8:1:3::4')).status, 303)

  const open = portOf(await startBff(t, sandbox, { LOGIN_RATE_PER_MINUTE: '1' }))
  t.equal((await from(open, '203.0.113.1')).status, 303)
  t.equal((await from(open, '203.0.113.2')).status, 429, 'without TRUST_PROXY the header is ignored')
})
