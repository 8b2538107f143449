import t from 'tap'
import { readDeclaredOperations } from '../../sandbox/operations.ts'
import { startSandbox } from './started.ts'

const OPERATIONS = {
  ReadSite: { method: 'GET', path: '/{wac}/Infrastructure/Site/{id}' },
  ListUnits: { method: 'GET', path: '/WUM' },
  MoveThing: { method: 'PATCH', path: '/{wac}/things/{thingId}' },
}

t.test('the sandbox serves what it has invented, and echoes the other operations of the file', async (t) => {
  const folder = t.testdir({ 'operations.json': JSON.stringify({ operations: OPERATIONS }) })
  const operations = readDeclaredOperations(`${folder}/operations.json`)
  const sandbox = await startSandbox(t, { operations })
  const headersOf = (username: string | null) => ({
    authorization: `Bearer ${sandbox.issueTokens(username).access_token}`,
    'content-type': 'application/json',
  })
  const get = async (path: string, username: string | null = 'alice') => {
    const response = await fetch(`${sandbox.url}${path}`, { headers: headersOf(username) })
    return { status: response.status, body: await response.json() }
  }
  t.match(await get('/DEMO/Infrastructure/Site/1'), {
    status: 200,
    body: { wType: 'Site', name: 'Head office' },
  })
  t.match(await get('/DEMO/Infrastructure/Site/404'), { status: 404 })
  t.match(await get('/NONE/Infrastructure/Site/1'), { status: 404 })
  t.match(await get('/DEMO/flux'), { status: 200, body: [{ wType: 'Flux', fluxID: 'temperature' }] })
  t.match(await get('/DEMO/User/me'), { status: 200, body: { id: 'user-alice', name: 'alice' } })
  t.match(await get('/DEMO/User/me', null), { status: 403 })
  t.match(await get('/WUM', null), { status: 200, body: [{ wType: 'WUM' }] })
  const moved = await fetch(`${sandbox.url}/DEMO/things/a?x=1`, {
    method: 'PATCH',
    headers: headersOf('alice'),
    body: '{"to":"b"}',
  })
  t.strictSame(await moved.json(), {
    wType: 'Echo',
    operation: 'MoveThing',
    method: 'PATCH',
    path: '/DEMO/things/a',
    query: { x: '1' },
    body: { to: 'b' },
  })
  t.strictSame(
    sandbox.journal
      .entries()
      .map(({ kind }) => kind)
      .filter((kind) => kind !== null),
    ['ReadSite', 'ReadSite', 'ReadSite', 'ListFluxes', 'GetMe', 'GetMe', 'ListUnits', 'MoveThing'],
  )
  t.equal((await fetch(`${sandbox.url}/DEMO/things/a`, { method: 'PATCH' })).status, 401)
})
