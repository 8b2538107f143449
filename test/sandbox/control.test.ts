import t from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { ask } from '../http/wire.ts'
import { getFlux, startSandbox } from './started.ts'

function post(sandbox: Sandbox, path: string, value: unknown = {}, headers = {}): Promise<Response> {
  return fetch(`${sandbox.url}/_sandbox/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(value),
  })
}

t.test('switches are merged over HTTP, and a misspelled switch is refused', async (t) => {
  const sandbox = await startSandbox(t)
  const set = await post(sandbox, 'faults', { state: 'echo', tokenEndpoint: { mode: 'drop', times: 2 } })
  t.match(await set.json(), { state: 'echo', pkce: 'honour', tokenEndpoint: { mode: 'drop', times: 2 } })
  const wrong = [
    { stat: 'echo' },
    { state: 'maybe' },
    { tokenEndpoint: { mode: 'invalid-token' } },
    { tokenEndpoint: { mode: 'status' } },
    { resource: { mode: 'slow' } },
    { resource: { mode: 'refuse' } },
    { resource: { mode: 'drop', time: 1 } },
  ]
  for (const faults of wrong) {
    t.equal((await post(sandbox, 'faults', faults)).status, 400, JSON.stringify(faults))
  }
  t.equal(sandbox.faults.current().state, 'echo')
  t.match(await (await post(sandbox, 'reset')).json(), { state: 'none', tokenEndpoint: { mode: 'ok' } })
})

t.test('gates work over HTTP', async (t) => {
  const sandbox = await startSandbox(t)
  const { access_token } = sandbox.issueTokens('alice')
  const hold = await post(sandbox, 'hold', { endpoint: 'resource', point: 'after' })
  const { id } = (await hold.json()) as { id: number }
  const arrived = fetch(`${sandbox.url}/_sandbox/gates/${id}/arrived`)
  const held = getFlux(sandbox, access_token)
  t.strictSame(await (await arrived).json(), { waiting: 1 })
  t.match(await (await fetch(`${sandbox.url}/_sandbox/gates`)).json(), [{ id, waiting: 1 }])
  t.strictSame(await (await post(sandbox, 'release', { id })).json(), { gates: [] })
  t.equal((await held).status, 200)
  t.equal((await fetch(`${sandbox.url}/_sandbox/gates/${id}/arrived`)).status, 404)
  await post(sandbox, 'hold', { endpoint: 'token' })
  t.strictSame(await (await post(sandbox, 'release')).json(), { gates: [] })
})

t.test('a page of another origin cannot change switches, and the routes can be turned off', async (t) => {
  const sandbox = await startSandbox(t)
  t.equal((await post(sandbox, 'revoke', {}, { 'sec-fetch-site': 'cross-site' })).status, 403)
  t.equal((await post(sandbox, 'reset', {}, { origin: 'http://evil.example' })).status, 403)
  for (const [host, status] of [
    ['evil.example', 403],
    ['evil.example:4000', 403],
    ['127.0.0.1.evil.example', 403],
    ['sandbox:4000', 200],
    ['localhost', 200],
    ['[::1]:4000', 200],
  ] as const) {
    const request = { target: '/_sandbox/journal', headers: [['Host', host]], noHost: true } as const
    const answer = await ask(portOfUrl(sandbox.authUrl), request)
    t.equal(answer.status, status, `a page whose own name leads here: ${host}`)
  }
  const closed = await startSandbox(t, { control: false })
  t.equal((await post(closed, 'reset')).status, 404)
})
