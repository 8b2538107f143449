import { readdirSync, readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { harmlessCommands } from '../../src/vault/store/redis/deployment-findings.ts'
import { offsetWallClock } from '../helpers/clock.ts'
import { logLines } from '../helpers/log-lines.ts'
import { startRedis } from '../helpers/redis.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { until, watchLateness } from '../helpers/wait.ts'

async function readyz(opsUrl: string | null): Promise<{ status: number; warnings?: string[] }> {
  const answer = await fetch(`${opsUrl}/readyz`)
  return { ...((await answer.json()) as object), status: answer.status }
}

/** By how many milliseconds the log calls the clock ahead, which a warning must say in seconds. */
function namedAheadMs(t: Test, log: string, warnings: readonly string[]): number {
  const aheadMs = Number(logLines(log, 'clock.differs')[0]?.aheadMs)
  const words = `${Math.round(Math.abs(aheadMs) / 1_000)} s ${aheadMs > 0 ? 'ahead of' : 'behind'} that of`
  t.ok(
    warnings.some((warning) => warning.includes(words)),
    words,
  )
  return aheadMs
}

t.test('eviction, commands that the ACL denies and a clock 5 s off are warned of once', async (t) => {
  const redis = await startRedis(t, { args: ['--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru'] })
  const sandbox = await startSandbox(t)
  await redis.cli('ACL', 'SETUSER', 'app', 'on', '>pw', '~bff:*', 'resetchannels', '+@all', '-scan', '-eval')
  const REDIS_URL = `redis://app:pw@127.0.0.1:${redis.port}`
  const setClock = offsetWallClock(t)
  setClock(60_000)
  const endWatch = watchLateness()
  const bff = await startBff(t, sandbox, { REDIS_URL })
  await until('all are found', async () => (await readyz(bff.opsUrl)).warnings?.length === 4)
  const { lateMs } = endWatch()
  setClock(0)
  const { status, warnings = [] } = await readyz(bff.opsUrl)
  t.equal(status, 200, 'ready, without channels too')
  for (const text of [
    /allkeys-lru.*set noeviction/,
    /\d s ahead of that of Redis/,
    /command EVAL/,
    /command SCAN/,
  ])
    t.equal(warnings.filter((warning) => text.test(warning)).length, 1, String(text))
  // The middle of the request is compared, so a process that is held up within it is off by half, either way.
  const aheadMs = namedAheadMs(t, bff.log(), warnings)
  t.ok(Math.abs(aheadMs - 60_000) < 500 + lateMs / 2, `${aheadMs} ms`)
  const lines = logLines(bff.log()).filter(({ event }) => /^(store|clock)\./.test(String(event)))
  t.match(lines.map(({ event, level, what, policy }) => [event, level, what ?? policy].join(' ')).sort(), [
    'clock.differs warn ',
    'store.denied warn command EVAL',
    'store.denied warn command SCAN',
    'store.evicts warn allkeys-lru',
  ])
  await redis.cli('ACL', 'SETUSER', 'app', 'resetkeys', '~other:*')
  const other = await startBff(t, sandbox, { REDIS_URL })
  await until('the keys are found', () => other.log().includes('keys below REDIS_PREFIX'))
})

t.test('a clock more than 5 s from that of the authorization server is warned of once', async (t) => {
  const setClock = offsetWallClock(t)
  const sandbox = await startSandbox(t)
  for (const [aheadMs, warned] of [
    [-60_000, true],
    [60_000, true],
    [-3_000, false],
    [3_000, false],
  ] as const) {
    // A `Date` header shows the real time.
    setClock(aheadMs)
    const bff = await startBff(t, sandbox)
    const endWatch = watchLateness()
    t.equal((await signIn(bff.browser(), sandbox)).status, 303)
    const { lateMs } = endWatch()
    t.equal((await signIn(bff.browser(), sandbox)).status, 303)
    t.equal(bff.log().split('"clock.differs"').length - 1, warned ? 1 : 0, `${aheadMs} ms`)
    const { warnings = [] } = await readyz(bff.opsUrl)
    if (warned) {
      t.match(warnings, [/\d s (ahead of|behind) that of the auth/])
      t.equal(warnings.length, 1)
      const namedMs = namedAheadMs(t, bff.log(), warnings)
      t.equal(namedMs > 0, aheadMs > 0)
      // Whatever passes until the header comes makes the difference look smaller; nothing makes it look larger.
      const offMs = Math.abs(namedMs)
      t.ok(offMs >= 58_500 - lateMs && offMs < 61_500, `${namedMs} ms`)
    } else t.strictSame(warnings, [])
  }
})

t.test('the inspection of the ACL covers every command of the scripts', async (t) => {
  const folder = new URL('../../src/vault/store/redis/lua/', import.meta.url)
  const scripts = readdirSync(folder).map((name) => readFileSync(new URL(name, folder), 'utf8'))
  const used = scripts.flatMap((text) =>
    [...text.matchAll(/redis\.p?call\('([A-Z]+)'/g)].map(([, name]) => name!),
  )
  const inspected = new Set(harmlessCommands('bff:').map(([command]) => command))
  t.strictSame(
    [...new Set(used)].filter((command) => !inspected.has(command)),
    [],
  )
})

t.test('a callback on another host and another scope are warned of once, at the first sign-in', async (t) => {
  const sandbox = await startSandbox(t)
  const warningsAfter = async (tokenAnswer: object) => {
    const bff = await startBff(t, sandbox)
    sandbox.faults.set({ tokenAnswer })
    for (let count = 0; count < 2; count += 1) {
      const browser = bff.browser()
      await signIn(browser, sandbox)
      t.match((await browser.fetch('/auth/session')).json(), { authenticated: true }, 'nothing is refused')
    }
    return logLines(bff.log()).filter(({ event }) => /^platform\.|^login\.no_/.test(String(event)))
  }
  t.strictSame(await warningsAfter({}), [], 'as configured')
  t.strictSame(await warningsAfter({ remove: ['callback', 'scope'] }), [])
  const host = 'development.example'
  const odd = { callback: `https://${host}/back`, scope: 'odd-scope' }
  const lines = await warningsAfter({ set: odd })
  t.match(lines, [
    { event: 'platform.callback_differs', level: 'warn', host, msg: /PUBLIC_URL.*credentials/ },
    {
      event: 'platform.scope_differs',
      level: 'warn',
      missing: sandbox.baseUrl,
      granted: 'odd-scope',
      msg: /upstream_refused/,
    },
  ])
  t.equal(lines.length, 2)
  const more = `profile ${sandbox.baseUrl} email`
  t.strictSame(await warningsAfter({ set: { scope: more } }), [], 'more was granted than asked')
  t.match(await warningsAfter({ remove: ['refresh_token'] }), [
    {
      event: 'login.no_refresh_token',
      level: 'warn',
      asked: sandbox.baseUrl,
      msg: /offline_access.*prompt=consent.*servers\.md/,
    },
  ])
})
