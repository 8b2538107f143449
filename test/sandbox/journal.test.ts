import { once } from 'node:events'
import { get } from 'node:http'
import t from 'tap'
import { codeFor, refresh, startSandbox } from './started.ts'

t.test('the journal has every request as it arrived, and its result', async (t) => {
  const sandbox = await startSandbox(t)
  const { access_token, refresh_token = '' } = sandbox.issueTokens('alice')
  await codeFor(sandbox)
  await refresh(sandbox, refresh_token)
  await fetch(`${sandbox.url}/DEMO/flux/a%20b?x=1&x=2&access_token=${access_token}`)
  await fetch(`${sandbox.url}/elsewhere`)
  const [authorize, token, resource, unknown] = sandbox.journal.entries()
  t.match(authorize, { endpoint: 'authorize', method: 'POST', outcome: 'granted', status: 302 })
  t.match(token, {
    endpoint: 'token',
    kind: 'refresh_token',
    form: { grant_type: 'refresh_token', refresh_token },
    outcome: 'granted',
    username: 'alice',
    status: 200,
  })
  t.match(resource, {
    endpoint: 'resource',
    kind: 'GetFlux',
    path: '/DEMO/flux/a%20b',
    query: { x: ['1', '2'], access_token },
    outcome: 'answered',
    username: 'alice',
  })
  t.match(unknown, { endpoint: 'unknown', path: '/elsewhere', outcome: 'not_found', status: 404 })
  t.equal(sandbox.journal.entries({ endpoint: 'token', username: 'alice' }).length, 1)
  t.equal(sandbox.journal.entries({ endpoint: 'token', username: 'bob' }).length, 0)
})

t.test('the journal has both values of a repeated header field', async (t) => {
  const sandbox = await startSandbox(t)
  const [path, headers] = ['/DEMO/flux/x', { 'X-Twice': ['1', '2'], connection: 'close' }]
  const [response] = await once(get(`${sandbox.url}${path}`, { headers }), 'response')
  response.resume()
  const raw = sandbox.journal.entries({ path })[0]?.rawHeaders ?? []
  t.strictSame(
    raw.filter((_text, index) => raw[index - 1] === 'X-Twice'),
    ['1', '2'],
  )
})
