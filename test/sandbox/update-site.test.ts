import t, { type Test } from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import type { SiteWire } from '../../sandbox/sites.ts'
import { startSandbox } from './started.ts'

async function start(t: Test): Promise<{ sandbox: Sandbox; call: Call }> {
  const sandbox = await startSandbox(t)
  const { access_token } = sandbox.issueTokens('alice')
  const call: Call = (method, path, body, headers = {}) =>
    fetch(`${sandbox.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${access_token}`, 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })
  return { sandbox, call }
}

type Call = (
  method: 'PUT' | 'POST',
  path: string,
  body: unknown,
  headers?: Record<string, string>,
) => Promise<Response>

t.test('PUT changes the given members and responds with the Site of the document', async (t) => {
  const { call } = await start(t)
  const body = { wType: 'UpdateSite', siteID: 1, wac: 'DEMO', name: 'Ünique', parentInfrastructureID: 7 }
  const response = await call('PUT', '/DEMO/Infrastructure/Site/1', body)
  const site = (await response.json()) as SiteWire
  t.equal(response.status, 200)
  t.match(response.headers.get('content-type'), /^application\/json/)
  t.strictSame(Object.keys(site).sort(), [
    'code',
    'creationDate',
    'description',
    'id',
    'name',
    'parentInfrastructureID',
    'picture',
    'updateDate',
    'wType',
  ])
  t.match(site, { wType: 'Site', id: 1, name: 'Ünique', code: 'HQ-01', parentInfrastructureID: 7 })
  t.match(site.creationDate, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z$/)
  t.match(site.updateDate, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z$/)
  t.match(site.picture, /^[0-9a-f]{32}$/)
  const cleared = await call('PUT', '/DEMO/Infrastructure/Site/1', { parentInfrastructureID: null })
  t.match(await cleared.json(), { name: 'Ünique', parentInfrastructureID: null })
})

t.test('a request that UpdateSite cannot parse changes nothing', async (t) => {
  const { call } = await start(t)
  const put = '/DEMO/Infrastructure/Site/1'
  const cases = [
    { path: put, body: '{', status: 400 },
    { path: put, body: '[]', status: 400 },
    { path: put, body: { Name: 'upper case' }, status: 400 },
    { path: put, body: { wType: 'Site' }, status: 400 },
    { path: put, body: { siteID: 2 }, status: 400 },
    { path: put, body: { wac: 'ACME' }, status: 400 },
    { path: put, body: { name: 1 }, status: 400 },
    { path: put, body: { parentInfrastructureID: '7' }, status: 400 },
    { path: '/DEMO/Infrastructure/Site/x', body: {}, status: 400 },
    { path: '/DEMO/Infrastructure/Site/9007199254740992', body: {}, status: 400 },
    { path: '/DEMO/Infrastructure/Site/404', body: {}, status: 404 },
    { path: '/NONE/Infrastructure/Site/1', body: {}, status: 404 },
  ]
  for (const { path, body, status } of cases) {
    t.equal((await call('PUT', path, body)).status, status, `${path} ${JSON.stringify(body)}`)
  }
  t.equal((await call('POST', '/json/reply/UpdateSite', { siteID: 1 })).status, 400, 'no wac')
  t.equal((await call('PUT', put, 'name=x', { 'content-type': 'text/plain' })).status, 415)
  t.match(await (await call('PUT', put, {})).json(), { name: 'Head office' })
})

t.test('absentMembers decides whether a member that is absent stays or is cleared', async (t) => {
  const { sandbox, call } = await start(t)
  const update = async (body: object) => (await call('PUT', '/DEMO/Infrastructure/Site/1', body)).json()
  const all = { name: 'N', description: 'D', code: 'C', parentInfrastructureID: 7 }
  t.match(await update(all), all)
  t.match(await update({ name: 'M' }), { ...all, name: 'M' })
  sandbox.faults.set({ absentMembers: 'clear' })
  t.match(await update({ name: 'O' }), { name: 'O', description: '', code: '', parentInfrastructureID: null })
  t.match(await update({ ...all, description: null, parentInfrastructureID: '' }), {
    ...all,
    description: '',
    parentInfrastructureID: null,
  })
})
