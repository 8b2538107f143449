import t from 'tap'
import { errorOf, startSandbox } from './started.ts'

const NOW = Date.UTC(2026, 10, 20, 14, 0, 3)
const SEVEN_DIGITS = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z/

t.test('GetFlux responds in the format of the parameter, else Content-Type, else Accept', async (t) => {
  const sandbox = await startSandbox(t, { now: () => NOW })
  const { access_token } = sandbox.issueTokens('alice')
  const cases = [
    { query: '', headers: {}, type: 'application/json', start: '{"wType":"Flux"' },
    { query: '?format=XML', headers: { accept: 'text/csv' }, type: 'application/xml', start: '<?xml' },
    { query: '?format=csv', headers: { 'content-type': 'application/json' }, type: 'text/csv', start: 'id,' },
    { query: '?format=JSV', headers: {}, type: 'text/jsv', start: '{wType:Flux' },
    {
      query: '',
      headers: { 'content-type': 'text/csv', accept: 'application/xml' },
      type: 'text/csv',
      start: 'id,',
    },
    { query: '', headers: { accept: 'text/html, application/xml' }, type: 'application/xml', start: '<?xml' },
    { query: '', headers: { accept: '*/*' }, type: 'application/json', start: '{"wType"' },
  ]
  for (const { query, headers, type, start } of cases) {
    const response = await fetch(`${sandbox.url}/DEMO/flux/temperature${query}`, {
      headers: { authorization: `Bearer ${access_token}`, ...headers } as Record<string, string>,
    })
    const text = await response.text()
    t.match(response.headers.get('content-type'), type)
    t.equal(text.slice(0, start.length), start)
    t.match(text, SEVEN_DIGITS)
    const id = BigInt(/\d{16,}/.exec(text)?.[0] ?? 0)
    t.ok(id > 2n ** 53n, 'a 64-bit integer that a double cannot hold')
    t.not(BigInt(Number(id)), id)
  }
  const unknown = await fetch(`${sandbox.url}/DEMO/flux/temperature?format=HTML&access_token=${access_token}`)
  t.equal(unknown.status, 400)
})

t.test('accounts, series and their size have limits', async (t) => {
  const users = [{ username: 'alice', password: 'x', wacs: ['ACME'] }]
  const sandbox = await startSandbox(t, { users })
  const token = sandbox.issueTokens('alice').access_token
  const status = async (path: string) => (await fetch(`${sandbox.url}${path}&access_token=${token}`)).status
  t.equal(await status('/ACME/flux/power?'), 200)
  t.equal(await status('/DEMO/flux/power?'), 403, 'no role in this account')
  t.equal(await status('/NONE/flux/power?'), 404)
  t.equal(await status('/ACME/flux/missing?'), 404)
  t.equal(await status('/ACME/flux/power?values=100001'), 400)
  const large = await fetch(`${sandbox.url}/ACME/flux/power?values=20000&access_token=${token}`)
  t.equal(JSON.parse(await large.text()).values.length, 20_000)
})

t.test('the access token is in the header or in the query, not in both', async (t) => {
  const sandbox = await startSandbox(t)
  const { access_token } = sandbox.issueTokens('alice')
  const url = `${sandbox.url}/DEMO/flux/power`
  const headers = { authorization: `Bearer ${access_token}` }
  t.equal((await fetch(`${url}?access_token=${access_token}&format=JSON`)).status, 200)
  t.equal((await fetch(url, { headers })).status, 200)
  const both = await fetch(`${url}?access_token=${access_token}`, { headers })
  t.equal(both.status, 400)
  t.equal(await errorOf(both), 'invalid_request')
  const none = await fetch(url)
  t.equal(none.status, 401)
  t.match(none.headers.get('www-authenticate'), 'error="invalid_token"')
})
