import { readFileSync } from 'node:fs'
import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { signInExpired } from '../helpers/replicas.ts'
import { metricsOf, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'

t.test('a refresh that gives no tokens is counted by its outcome', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  for (const [fault, outcome, status] of [
    [{ mode: 'refuse' }, 'refused', 401],
    [{ mode: 'status', status: 503, headers: { 'retry-after': '1' } }, 'unavailable', 503],
    [{ mode: 'drop' }, 'in_doubt', 503],
  ] as const) {
    sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })
    const browser = await signInExpired(bff, sandbox)
    sandbox.faults.set({ tokenEndpoint: fault })
    t.equal((await browser.fetch('/flux/a')).status, status, outcome)
    const line = `{trigger="request",outcome="${outcome}"} 1\n`
    const text = await metricsOf(bff)
    t.ok(text.includes(`bff_refresh_total${line}`), outcome)
    t.ok(text.includes(`bff_refresh_duration_seconds_count${line}`), outcome)
  }
})

t.test('every event is counted under its documented name, without ids in labels', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { SESSION_CACHE_MS: '10000' })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const cookies = [...browser.cookies.values()]
  await browser.fetch('/flux/private-flux')
  await browser.fetch('/flux/private-flux?note=private-note')
  sandbox.expireAccessTokens()
  await browser.fetch('/flux/ACME/private-flux')
  const json = { 'content-type': 'application/json' }
  await browser.fetch('/site/4242', { method: 'PUT', headers: json, body: '{}' })
  await browser.fetch('/private-path')
  await browser.fetch('/flux/%zz')
  await browser.fetch('/auth/logout', { method: 'POST' })

  const response = await fetch(`${bff.opsUrl}/metrics`)
  t.equal(response.status, 200)
  t.match(response.headers.get('content-type'), /^text\/plain; version=/)
  const text = await response.text()
  const counts = (name: string): string[] =>
    [...text.matchAll(new RegExp(`^${name}_count\\{(.*)$`, 'gm'))].map(([, line]) => line!).sort()
  t.strictSame(counts('bff_http_request_duration_seconds'), [
    'route="/auth/callback/:nonce",method="GET",status="303"} 1',
    'route="/auth/login",method="GET",status="303"} 1',
    'route="/auth/logout",method="POST",status="204"} 1',
    'route="/flux/:fluxId",method="GET",status="200"} 2',
    'route="/flux/:wac/:fluxId",method="GET",status="200"} 1',
    'route="/site/:siteId",method="PUT",status="200"} 1',
    'route="none",method="GET",status="400"} 1',
    'route="none",method="GET",status="404"} 1',
  ])
  t.strictSame(counts('bff_upstream_duration_seconds'), [
    'operation="GetFlux",status="200"} 3',
    'operation="GetFlux",status="401"} 1',
    'operation="UpdateSite",status="200"} 1',
  ])
  for (const line of [
    'bff_sessions_started_total{flow="code"} 1',
    'bff_sessions_ended_total{reason="logout"} 1',
    'bff_refresh_total{trigger="invalid_token",outcome="granted"} 1',
    'bff_refresh_duration_seconds_count{trigger="invalid_token",outcome="granted"} 1',
    'bff_session_cache_total{result="miss"} 1',
    'bff_session_cache_total{result="hit"} 3',
    'bff_refresh_due 0',
    'bff_refresh_consecutive_failures 0',
    'bff_refresh_unsaved 0',
    'bff_store_up 1',
  ])
    t.ok(text.includes(`${line}\n`), line)
  t.match(text, '# TYPE process_cpu_seconds_total ')
  t.match(text, 'bff_refresh_lag_seconds_bucket{le="600"} 0', 'lateness of minutes can be told')
  // The revision may hold these digits.
  const labelled = text.replace(/^bff_build_info.*$/m, '')
  t.notMatch(labelled, /private|ACME|DEMO|"[^"\n]*4242[^"\n]*"|[0-9a-f]{64}/)
  for (const { value } of cookies) t.notOk(text.includes(value))

  const served = [...text.matchAll(/^# TYPE (bff_\w+) /gm)].map(([, name]) => name)
  const page = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8')
  const described = [...page.matchAll(/^\| `(bff_\w+)` \|/gm)].map(([, name]) => name)
  t.strictSame(described.sort(), served.sort(), 'docs/metrics.md names exactly these')
})

t.test('every counter has every value of its labels from the first scrape on', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const series = (await metricsOf(bff)).split('\n').filter((line) => /^bff_\w+_total/.test(line))
  const outcomes = ['granted', 'refused', 'unavailable', 'in_doubt']
  t.strictSame(
    series.sort(),
    [
      'bff_log_lines_dropped_total 0',
      'bff_sessions_bound_total 0',
      ...['granted', 'challenged', 'refused', 'unavailable'].map(
        (outcome) => `bff_device_refresh_total{outcome="${outcome}"} 0`,
      ),
      ...outcomes.flatMap((outcome) =>
        ['request', 'schedule', 'invalid_token'].map(
          (trigger) => `bff_refresh_total{trigger="${trigger}",outcome="${outcome}"} 0`,
        ),
      ),
      ...['hit', 'revalidated', 'miss'].map((result) => `bff_session_cache_total{result="${result}"} 0`),
      ...['logout', 'idle', 'absolute', 'refused', 'replaced', 'operator'].map(
        (reason) => `bff_sessions_ended_total{reason="${reason}"} 0`,
      ),
      ...['code', 'token', 'password'].map((flow) => `bff_sessions_started_total{flow="${flow}"} 0`),
      ...['refused', 'server_error', 'login_failed', 'unavailable', 'store', 'rate_limited'].map(
        (reason) => `bff_sign_in_failures_total{reason="${reason}"} 0`,
      ),
      ...['tokens', 'end'].map((what) => `bff_store_restored_total{what="${what}"} 0`),
      ...['tokens', 'lease', 'end'].map((step) => `bff_store_retries_total{step="${step}"} 0`),
    ].sort(),
  )
})

t.test('a sign-in whose session is created but not confirmed counts as failed alone', async (t) => {
  const sandbox = await startSandbox(t)
  const redis = await startRedis(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url })
  await untilReady(bff)
  // Of the commands of a sign-in only the confirmation sets the expiry as an instant.
  await redis.cli('ACL', 'SETUSER', 'default', '-pexpireat')
  t.equal((await signIn(bff.browser(), sandbox)).status, 503)
  await redis.cli('ACL', 'SETUSER', 'default', '+pexpireat')
  t.equal((await signIn(bff.browser(), sandbox)).status, 303)

  const text = await metricsOf(bff)
  t.match(text, 'bff_sign_in_failures_total{reason="store"} 1\n')
  t.match(text, 'bff_sessions_started_total{flow="code"} 1\n')
  t.notMatch(text, /bff_sessions_ended_total\{.*\} [1-9]/)

  await t.test('while Redis is away the length of the queue is not known', async (t) => {
    await redis.stop()
    const text = await metricsOf(bff)
    t.match(text, /^bff_refresh_due Nan$/m)
    t.match(text, /^bff_store_up 0$/m)
  })
})
