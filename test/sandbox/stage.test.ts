import t from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import type { Stage } from '../../sandbox/stage.ts'
import { codeFor, getFlux, REDIRECT_URI, refresh, startSandbox, tokenRequest, tokensOf } from './started.ts'

async function stageOf(sandbox: Sandbox, session: string): Promise<Stage> {
  const response = await fetch(`${sandbox.url}/_sandbox/stage.json?session=${session}`)
  return (await response.json()) as Stage
}

/** The header by which the page of this session marks its requests. */
function traceOf(session: string): Record<string, string> {
  return { traceparent: `00-${session.padStart(32, '0')}-${'1'.repeat(16)}-00` }
}

t.test('the stage shows a session its own requests, with tokens as numbers, and no other', async (t) => {
  const sandbox = await startSandbox(t)
  const code = await codeFor(sandbox)
  const redeemed = await tokenRequest(sandbox, {
    grant_type: 'authorization_code',
    code,
    redirect_uri: REDIRECT_URI,
  })
  const own = await tokensOf(redeemed)
  const other = sandbox.issueTokens('alice')
  t.match(await stageOf(sandbox, 'aaaaaaaaaaaa'), { connected: true, issued: 0, entries: [] })

  await getFlux(sandbox, own.access_token, traceOf('aaaaaaaaaaaa'))
  await getFlux(sandbox, other.access_token, traceOf('bbbbbbbbbbbb'))
  await refresh(sandbox, other.refresh_token)
  await refresh(sandbox, own.refresh_token)
  const { issued, entries } = await stageOf(sandbox, 'aaaaaaaaaaaa')
  t.equal(issued, 2, 'the refresh of the other session is not counted')
  t.match(
    entries,
    [
      { kind: 'authorization_code', issued: 1, presented: null },
      { kind: 'GetFlux', issued: null, presented: 1, status: 200 },
      { kind: 'refresh_token', issued: 2, status: 200 },
    ],
    'numbers count within the session',
  )
  t.equal(entries.length, 3)
  const secrets = [code, own, other].flatMap((each) =>
    JSON.stringify(each).match(/(?:at|rt|code)-[\w-]{43}/g),
  )
  t.equal(secrets.length, 5)
  for (const secret of secrets) t.notMatch(JSON.stringify(entries), String(secret))
  t.equal((await stageOf(sandbox, 'bbbbbbbbbbbb')).issued, 2)
  for (const session of ['', '0', 'cccccccccccc']) t.equal((await stageOf(sandbox, session)).issued, 0)
})

t.test('the stage knows a session whose access token comes in the query', async (t) => {
  const sandbox = await startSandbox(t)
  const { access_token: token } = sandbox.issueTokens('alice')
  const headers = traceOf('aaaaaaaaaaaa')
  await (await fetch(`${sandbox.baseUrl}/DEMO/flux/power?access_token=${token}`, { headers })).text()
  const { issued, entries } = await stageOf(sandbox, 'aaaaaaaaaaaa')
  t.equal(issued, 1)
  t.match(entries, [{ kind: 'GetFlux', presented: 1, status: 200 }])
  t.notMatch(JSON.stringify(entries), token)
})
