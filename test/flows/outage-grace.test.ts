import t, { type Test } from 'tap'
import type { Sandbox } from '../../src/sandbox/sandbox.ts'
import type { Answer, Browser } from '../helpers/browser.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { signInFor, through } from '../helpers/replicas.ts'
import { type Bff, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { type Proxy as Network, startProxy } from '../store/proxy.ts'

// Most of the time is spent waiting.
t.jobs = 6

interface Away {
  redis: RedisServer
  proxy: Network
  sandbox: Sandbox
  /** Reaches Redis through `proxy`. */
  bff: Bff
}

async function start(t: Test, graceSeconds: number, env: Record<string, string> = {}): Promise<Away> {
  const redis = await startRedis(t, { args: ['--appendonly', 'yes', '--appendfsync', 'always'] })
  const proxy = await startProxy(t, redis.port)
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, {
    REDIS_URL: `redis://127.0.0.1:${proxy.port}`,
    STORE_OUTAGE_GRACE_SECONDS: String(graceSeconds),
    ...env,
  })
  await untilReady(bff)
  return { redis, proxy, sandbox, bff }
}

/** A browser whose session the replica has in its cache. */
async function known(bff: Bff, sandbox: Sandbox, tokenSeconds?: number): Promise<Browser> {
  const browser = tokenSeconds === undefined ? bff.browser() : await signInFor(bff, sandbox, tokenSeconds)
  if (tokenSeconds === undefined) {
    // A busy machine may take longer than a command to the store may.
    await until('the sign-in', async () => (await signIn(browser, sandbox)).status === 303)
  }
  const hits = 'bff_session_cache_total{result="hit"}'
  const before = await counted(bff, hits)
  await until('a call finds the session in the cache', async () => {
    const { status } = await browser.fetch('/flux/a')
    if (status !== 200) throw new Error(`a call before the outage answered ${status}`)
    return (await counted(bff, hits)) > before
  })
  return browser
}

async function counted(bff: Bff, metric: string): Promise<number> {
  const text = await (await fetch(`${bff.opsUrl}/metrics`)).text()
  const line = text.split('\n').find((one) => one.startsWith(metric))
  return Number(line?.split(' ').at(-1) ?? 0)
}

async function graceBegun(bff: Bff, browser: Browser): Promise<void> {
  await until('the grace has begun', async () => {
    await browser.fetch('/flux/a')
    return bff.log().includes('grace.begun')
  })
}

async function readyz(bff: Bff): Promise<number> {
  const response = await fetch(`${bff.opsUrl}/readyz`)
  await response.arrayBuffer()
  return response.status
}

function isStoreUnavailable(t: Test, answer: Answer, what: string): void {
  t.equal(answer.status, 503, what)
  t.match(answer.json(), { code: 'store_unavailable' })
  t.match(answer.headers['retry-after'], /^[1-9]\d*$/)
  t.strictSame(answer.setCookies, [])
}

const OUTAGES: Record<string, { begin: (away: Away) => unknown; end: (away: Away) => unknown }> = {
  'a killed Redis': { begin: ({ redis }) => redis.kill(), end: ({ redis }) => redis.restart() },
  'a frozen Redis': { begin: ({ redis }) => redis.pause(), end: ({ redis }) => redis.resume() },
  'a network that cuts': { begin: ({ proxy }) => proxy.cut(), end: ({ proxy }) => proxy.heal() },
  'a network that swallows': { begin: ({ proxy }) => proxy.freeze(), end: ({ proxy }) => proxy.thaw() },
}

for (const [name, outage] of Object.entries(OUTAGES)) {
  t.test(
    `${name}: a cached session is served during the grace, no other session is, and not for longer`,
    async (t) => {
      const graceMs = 4_000
      const away = await start(t, graceMs / 1_000)
      const { bff, sandbox } = away
      const browser = await known(bff, sandbox)
      const stranger = bff.browser()
      await signIn(stranger, sandbox)
      const leaver = await known(bff, sandbox)

      const begun = performance.now()
      await outage.begin(away)
      isStoreUnavailable(t, await stranger.fetch('/flux/a'), 'a session that was not in the cache')
      isStoreUnavailable(t, await leaver.fetch('/auth/logout', { method: 'POST' }), 'a sign-out')
      isStoreUnavailable(t, await leaver.fetch('/flux/a'), 'whoever wanted to sign out is not served')
      isStoreUnavailable(t, await browser.fetch('/auth/session'), 'what only the store can say')
      const seen = new Set<string>()
      // What is answered later is no matter here: a busy machine may be slow.
      const note = async (what: string, status: Promise<number>): Promise<void> => {
        const text = `${what} ${await status}`
        if (performance.now() - begun < graceMs) seen.add(text)
      }
      const update = { method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{"name":"n"}' }
      while (performance.now() - begun < graceMs) {
        await note(
          'GetFlux',
          browser.fetch('/flux/a').then(({ status }) => status),
        )
        await note(
          'UpdateSite',
          browser.fetch('/site/42', update).then(({ status }) => status),
        )
        await note('readyz', readyz(bff))
        await elapsed(25)
      }
      t.strictSame([...seen].sort(), ['GetFlux 200', 'UpdateSite 200', 'readyz 200'])

      await until('the grace is over', async () => (await browser.fetch('/flux/a')).status === 503)
      t.ok(performance.now() - begun < graceMs + 2_500)
      isStoreUnavailable(t, await browser.fetch('/flux/a'), 'after the grace')
      t.equal(await readyz(bff), 503)

      await outage.end(away)
      for (const one of [browser, stranger]) {
        await until('the same cookies work', async () => (await one.fetch('/flux/a')).status === 200)
      }
      // A sign-out that a frozen Redis had already received is done when it goes on.
      t.ok([200, 401].includes((await leaver.fetch('/flux/a')).status))
      await untilReady(bff)
      const lines = bff
        .log()
        .split('\n')
        .filter((line) => line.includes('"event":"grace.'))
        .map((line) => JSON.parse(line) as { event: string; level: string })
      t.strictSame(
        lines.map(({ event, level }) => [event, level]),
        [
          ['grace.begun', 'warn'],
          ['grace.ended', 'warn'],
        ],
      )
    },
  )
}

for (const [name, outage] of Object.entries(OUTAGES)) {
  t.test(`${name}: without a grace a cached session is refused within a second`, async (t) => {
    const away = await start(t, 0)
    const browser = await known(away.bff, away.sandbox)
    const begun = performance.now()
    await outage.begin(away)
    await until('it is refused', async () => (await browser.fetch('/flux/a')).status === 503)
    // The cache is trusted for nine tenths of a second; the rest is what a busy machine adds.
    t.ok(performance.now() - begun < 4_000)
    isStoreUnavailable(t, await browser.fetch('/flux/a'), 'without a grace')
    t.equal(await readyz(away.bff), 503)
    await outage.end(away)
  })
}

t.test('during the grace no call is sent to a frozen Redis or waits for it', async (t) => {
  const { redis, bff, sandbox } = await start(t, 60)
  const browser = await known(bff, sandbox)
  const lookUps = 'bff_store_duration_seconds_count{command="hmget"}'
  redis.pause()
  await graceBegun(bff, browser)
  const [asked, bypassed] = [
    await counted(bff, lookUps),
    await counted(bff, 'bff_session_cache_total{result="bypass"}'),
  ]
  t.ok(asked > 0)
  for (let call = 0; call < 40; call += 1) {
    t.equal((await browser.fetch('/flux/a')).status, 200)
    await elapsed(50)
  }
  t.equal(await counted(bff, lookUps), asked)
  t.equal(await counted(bff, 'bff_session_cache_total{result="bypass"}'), bypassed + 40)
  redis.resume()
})

t.test(
  'a sign-out on another replica during the outage is seen as soon as the store is reachable',
  async (t) => {
    for (const [begin, end] of [
      ['cut', 'heal'],
      ['freeze', 'thaw'],
    ] as const) {
      const { redis, proxy, bff, sandbox } = await start(t, 60)
      const other = await startBff(t, sandbox, { REDIS_URL: redis.url })
      await untilReady(other)
      const browser = await known(bff, sandbox)
      const stays = await known(bff, sandbox)
      proxy[begin]()
      await graceBegun(bff, browser)
      t.equal((await through(other, browser).fetch('/auth/logout', { method: 'POST' })).status, 204)
      t.equal((await browser.fetch('/flux/a')).status, 200, 'not seen while the store is away')
      proxy[end]()
      await until('the grace has ended', () => bff.log().includes('grace.ended'))
      const after: number[] = []
      for (let call = 0; call < 10; call += 1) after.push((await browser.fetch('/flux/a')).status)
      t.strictSame([...new Set(after)], [401])
      t.equal((await stays.fetch('/flux/a')).status, 200)
    }
  },
)

t.test('a store that can be read again is trusted before its messages arrive', async (t) => {
  const { redis, proxy, bff, sandbox } = await start(t, 60)
  const other = await startBff(t, sandbox, { REDIS_URL: redis.url })
  await untilReady(other)
  const browser = await known(bff, sandbox)
  proxy.cut()
  await graceBegun(bff, browser)
  t.equal((await through(other, browser).fetch('/auth/logout', { method: 'POST' })).status, 204)
  // Nobody may hear messages any more; commands work.
  await redis.cli('acl', 'setuser', 'default', 'resetchannels')
  proxy.heal()
  await until('it is seen', async () => (await browser.fetch('/flux/a')).status === 401, 3_000)
  t.equal(bff.log().includes('grace.ended'), false, 'messages are still away')
  proxy.cut()
  const after = await browser.fetch('/flux/a')
  t.not(after.status, 200, 'nor is it served when the store goes away once more')
})

t.test('no access token is used after its expiry', async (t) => {
  const { redis, bff, sandbox } = await start(t, 60)
  const before = performance.now()
  const browser = await known(bff, sandbox, 9)
  const after = performance.now()
  await redis.kill()
  // Beyond the threshold of a refresh it is used, since no refresh can be made.
  await elapsed(7_000 - (performance.now() - before))
  t.equal((await browser.fetch('/flux/a')).status, 200)
  await elapsed(9_100 - (performance.now() - after))
  isStoreUnavailable(t, await browser.fetch('/flux/a'), 'after its end')
  t.equal(await readyz(bff), 200, 'the grace goes on for others')
})

t.test('the idle limit holds during the grace', async (t) => {
  const { proxy, bff, sandbox } = await start(t, 60, { SESSION_IDLE_SECONDS: '3' })
  const [idle, busy] = [await known(bff, sandbox), await known(bff, sandbox)]
  // A busy machine may have taken a second or two over the sign-ins.
  t.equal((await busy.fetch('/flux/a')).status, 200)
  proxy.cut()
  const begun = performance.now()
  const statuses = new Set<number>()
  while (performance.now() - begun < 3_800) {
    statuses.add((await busy.fetch('/flux/a')).status)
    await elapsed(200)
  }
  t.strictSame([...statuses], [200], 'a browser that is busy is served')
  isStoreUnavailable(t, await idle.fetch('/flux/a'), 'beyond the idle limit')
})

t.test('activity during the grace keeps a session from ending as idle', async (t) => {
  const { proxy, bff, sandbox } = await start(t, 60, { SESSION_IDLE_SECONDS: '8' })
  const [busy, idle] = [await known(bff, sandbox), await known(bff, sandbox)]
  const seen = performance.now()
  proxy.cut()
  await elapsed(3_000)
  t.equal((await busy.fetch('/flux/a')).status, 200)
  proxy.heal()
  await until('the grace has ended', () => bff.log().includes('grace.ended'))
  await elapsed(9_000 - (performance.now() - seen))
  // For five seconds after the connection is back it is 503.
  let status = 503
  await until('it is decided', async () => {
    status = (await idle.fetch('/flux/a')).status
    return status !== 503
  })
  t.equal(status, 401)
  t.equal((await busy.fetch('/flux/a')).status, 200)
})

t.test('the absolute limit holds during the grace', async (t) => {
  const { proxy, bff, sandbox } = await start(t, 60, { SESSION_MAX_SECONDS: '4' })
  const browser = await known(bff, sandbox)
  const signedIn = performance.now()
  proxy.cut()
  t.equal((await browser.fetch('/flux/a')).status, 200)
  await elapsed(4_100 - (performance.now() - signedIn))
  isStoreUnavailable(t, await browser.fetch('/flux/a'), 'at the absolute limit')
})

t.test('a token that the resource server refuses during the grace is not used again', async (t) => {
  const { proxy, bff, sandbox } = await start(t, 60)
  const browser = await known(bff, sandbox)
  proxy.cut()
  t.equal((await browser.fetch('/flux/a')).status, 200)
  sandbox.faults.set({ resource: { mode: 'invalid-token', times: 1 } })
  isStoreUnavailable(t, await browser.fetch('/flux/a'), 'no other token can be had')
  isStoreUnavailable(t, await browser.fetch('/flux/a'), 'and the one that was refused is not tried again')
})

t.test('a store that refuses commands does not count as unreachable', async (t) => {
  const refusals: Record<string, (redis: RedisServer) => Promise<unknown>> = {
    'permissions taken away': (redis) =>
      redis.cli('acl', 'setuser', 'app', '-@all', '+client', '+ping', '+info'),
    'the user deleted': (redis) => redis.cli('acl', 'deluser', 'app'),
    'the password changed': async (redis) => {
      await redis.cli('acl', 'setuser', 'app', 'resetpass', '>another')
      await redis.cli('client', 'kill', 'user', 'app')
    },
  }
  for (const [name, refuse] of Object.entries(refusals)) {
    const redis = await startRedis(t)
    await redis.cli('acl', 'setuser', 'app', 'on', '>app-password', '~*', '&*', '+@all')
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox, {
      REDIS_URL: `redis://app:app-password@127.0.0.1:${redis.port}`,
      STORE_OUTAGE_GRACE_SECONDS: '60',
    })
    await untilReady(bff)
    const browser = await known(bff, sandbox)
    await refuse(redis)
    await until(name, async () => (await browser.fetch('/flux/a')).status === 503)
    for (let call = 0; call < 30; call += 1) {
      isStoreUnavailable(t, await browser.fetch('/flux/a'), name)
      await elapsed(50)
    }
    t.equal(await readyz(bff), 503, name)
  }
})
