import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { signInExpired } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'

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
    const text = await metricsOf(bff.opsUrl)
    t.ok(text.includes(`bff_refresh_total${line}`), outcome)
    t.ok(text.includes(`bff_refresh_duration_seconds_count${line}`), outcome)
  }
})

async function metricsOf(opsUrl: string): Promise<string> {
  return await (await fetch(`${opsUrl}/metrics`)).text()
}

t.test('every event is counted under its documented name, without ids in labels', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  await browser.fetch('/flux/temperature')
  await browser.fetch('/flux/temperature')
  sandbox.expireAccessTokens()
  await browser.fetch('/flux/humidity')
  await browser.fetch('/auth/logout', { method: 'POST' })

  const text = await metricsOf(bff.opsUrl)
  for (const line of [
    'bff_http_request_duration_seconds_count{route="/flux/:fluxId",method="GET",status="200"} 3',
    'bff_http_request_duration_seconds_count{route="/auth/logout",method="POST",status="204"} 1',
    'bff_upstream_duration_seconds_count{operation="GetFlux",status="200"} 3',
    'bff_upstream_duration_seconds_count{operation="GetFlux",status="401"} 1',
    'bff_sessions_started_total{flow="code"} 1',
    'bff_sessions_ended_total{reason="logout"} 1',
    'bff_refresh_total{trigger="invalid_token",outcome="granted"} 1',
    'bff_refresh_duration_seconds_count{trigger="invalid_token",outcome="granted"} 1',
    'bff_session_cache_total{result="miss"} 1',
    'bff_session_cache_total{result="hit"} 2',
    'bff_refresh_due 0',
    'bff_refresh_consecutive_failures 0',
    'bff_refresh_unsaved 0',
    'bff_store_up 1',
  ]) {
    t.ok(text.includes(`${line}\n`), line)
  }
  for (const name of ['bff_refresh_lag_seconds', 'bff_store_duration_seconds', 'process_cpu_seconds_total']) {
    t.match(text, `# TYPE ${name} `, name)
  }
  t.match(text, 'bff_refresh_lag_seconds_bucket{le="600"} 0', 'lateness of minutes can be told')
  t.notMatch(text, /temperature|humidity|DEMO/)
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

  const text = await metricsOf(bff.opsUrl)
  t.match(text, 'bff_sign_in_failures_total{reason="store"} 1\n')
  t.match(text, 'bff_sessions_started_total{flow="code"} 1\n')
  t.notMatch(text, /bff_sessions_ended_total{/)
})

t.test('while Redis is away the metrics say that the length of the queue is not known', async (t) => {
  const redis = await startRedis(t)
  const bff = await startBff(t, await startSandbox(t), { REDIS_URL: redis.url })
  await untilReady(bff)
  await redis.stop()
  const text = await metricsOf(bff.opsUrl)
  t.match(text, /^bff_refresh_due Nan$/m)
  t.match(text, /^bff_store_up 0$/m)
})
