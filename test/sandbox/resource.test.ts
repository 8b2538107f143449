import t, { type Test } from 'tap'
import type { SiteWire } from '../../sandbox/sites.ts'
import { errorOf, startSandbox } from './started.ts'

const SEVEN_DIGITS = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z/

t.test('GetFlux responds in the format of the parameter, else Content-Type, else Accept', async (t) => {
  const sandbox = await startSandbox(t)
  const { access_token } = sandbox.issueTokens('alice')
  const read = (query: string, headers: Record<string, string>) =>
    fetch(`${sandbox.url}/DEMO/flux/temperature${query}`, {
      headers: { authorization: `Bearer ${access_token}`, ...headers },
    })
  const starts = { json: '{"wType":"Flux"', xml: '<?xml', csv: 'id,', jsv: '{wType:Flux' }
  const cases: [query: string, headers: Record<string, string>, format: keyof typeof starts][] = [
    ['', {}, 'json'],
    ['', { accept: '*/*' }, 'json'],
    ['', { accept: 'text/html, application/xml' }, 'xml'],
    ['', { 'content-type': 'text/csv', accept: 'application/xml' }, 'csv'],
    ['?format=XML', { accept: 'text/csv' }, 'xml'],
    ['?format=csv', { 'content-type': 'application/json' }, 'csv'],
    ['?format=JSV', {}, 'jsv'],
  ]
  for (const [query, headers, format] of cases) {
    const response = await read(query, headers)
    const text = await response.text()
    t.match(response.headers.get('content-type'), format)
    t.ok(text.startsWith(starts[format]), text.slice(0, 20))
    t.match(text, SEVEN_DIGITS)
    const id = BigInt(/\d{16,}/.exec(text)?.[0] ?? 0)
    t.not(BigInt(Number(id)), id, 'an integer that a double cannot hold')
  }
  t.equal((await read('?format=HTML', {})).status, 400)
})

t.test('lists take take, skip, search and format', async (t) => {
  const sandbox = await startSandbox(t)
  const { access_token } = sandbox.issueTokens('alice')
  const headers = { authorization: `Bearer ${access_token}` }
  const read = (path: string) => fetch(`${sandbox.url}${path}`, { headers })
  const text = async (path: string) => await (await read(path)).text()
  t.match(JSON.parse(await text('/DEMO/flux?skip=1&take=1')), [{ fluxID: 'power', wac: 'DEMO' }])
  t.equal(JSON.parse(await text('/DEMO/flux?take=0')).length, 0)
  t.equal(await text('/DEMO/flux?search=WAT&format=CSV'), 'wType,fluxID,wac\r\nFlux,water,DEMO\r\n')
  t.equal(await text('/WUM?take=1&format=JSV'), '[{wType:WUM,id:1,name:Electricity,unit:kWh}]')
  t.match(await text('/WUM?skip=1&format=XML'), '<Rows><WUM id="2" name="Cold water" unit="m³"/></Rows>')
  t.equal((await read('/DEMO/flux?take=all')).status, 400)
  t.equal((await read('/DEMO/flux?format=PDF')).status, 400)
})

t.test('a call needs a known account with a role, and its token in the header or in the query', async (t) => {
  const users = [{ username: 'alice', password: 'x', wacs: ['ACME'] }]
  const sandbox = await startSandbox(t, { users })
  const token = sandbox.issueTokens('alice').access_token
  const status = async (path: string) => (await fetch(`${sandbox.url}${path}?access_token=${token}`)).status
  t.equal(await status('/ACME/flux/power'), 200)
  t.equal(await status('/DEMO/flux/power'), 403, 'no role in this account')
  t.equal(await status('/NONE/flux/power'), 404)
  t.equal(await status('/ACME/flux/missing'), 404)
  const headers = { authorization: `Bearer ${token}` }
  const both = await fetch(`${sandbox.url}/ACME/flux/power?access_token=${token}`, { headers })
  t.strictSame([both.status, await errorOf(both)], [400, 'invalid_request'])
  const none = await fetch(`${sandbox.url}/ACME/flux/power`)
  t.equal(none.status, 401)
  t.match(none.headers.get('www-authenticate'), 'error="invalid_token"')
})

const SITE = '/DEMO/Infrastructure/Site/1'

async function startSites(t: Test) {
  const sandbox = await startSandbox(t)
  const { access_token } = sandbox.issueTokens('alice')
  const call = (method: string, path: string, body: unknown, headers = {}): Promise<Response> =>
    fetch(`${sandbox.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${access_token}`, 'content-type': 'application/json', ...headers },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    })
  return { sandbox, call }
}

t.test('UpdateSite changes the given members and responds with the Site of the document', async (t) => {
  const { sandbox, call } = await startSites(t)
  const update = async (body: object) => (await call('PUT', SITE, body)).json() as Promise<SiteWire>
  const site = await update({ wType: 'UpdateSite', siteID: 1, wac: 'DEMO', name: 'Ünique' })
  const members = 'code creationDate description id name parentInfrastructureID picture updateDate wType'
  t.equal(Object.keys(site).sort().join(' '), members)
  t.match(site, { wType: 'Site', id: 1, name: 'Ünique', code: 'HQ-01', creationDate: SEVEN_DIGITS })

  const all = { name: 'N', description: 'D', code: 'C', parentInfrastructureID: 7 }
  t.match(await update(all), all)
  t.match(await update({ name: 'M' }), { ...all, name: 'M' })
  sandbox.faults.set({ absentMembers: 'clear' })
  t.match(await update({ name: 'O' }), { name: 'O', description: '', code: '', parentInfrastructureID: null })
})

t.test('a request that UpdateSite cannot parse changes nothing', async (t) => {
  const { call } = await startSites(t)
  for (const [path, body, status] of [
    [SITE, '{', 400],
    [SITE, '[]', 400],
    [SITE, { Name: 'upper case' }, 400],
    [SITE, { wType: 'Site' }, 400],
    [SITE, { siteID: 2 }, 400],
    [SITE, { wac: 'ACME' }, 400],
    [SITE, { name: 1 }, 400],
    [SITE, { parentInfrastructureID: '7' }, 400],
    ['/DEMO/Infrastructure/Site/x', {}, 400],
    ['/DEMO/Infrastructure/Site/9007199254740992', {}, 400],
    ['/DEMO/Infrastructure/Site/404', {}, 404],
    ['/NONE/Infrastructure/Site/1', {}, 404],
  ] as const) {
    t.equal((await call('PUT', path, body)).status, status, `${path} ${JSON.stringify(body)}`)
  }
  for (const suffix of ['', '.json'])
    t.equal((await call('POST', `/json/reply/UpdateSite${suffix}`, { siteID: 1 })).status, 400, 'no wac')
  t.equal((await call('PUT', SITE, 'name=x', { 'content-type': 'text/plain' })).status, 415)
  t.match(await (await call('PUT', SITE, {})).json(), { name: 'Head office' })
})

t.test('files: a picture, a PDF, and what was uploaded comes back byte for byte', async (t) => {
  const { sandbox, call } = await startSites(t)
  const read = async (path: string) => {
    const response = await call('GET', path, undefined)
    return { type: response.headers.get('content-type'), bytes: Buffer.from(await response.arrayBuffer()) }
  }
  const picture = await read('/DEMO/FileStore/picture.png')
  t.equal(picture.type, 'image/png')
  t.equal(picture.bytes.toString('hex', 0, 8), '89504e470d0a1a0a')
  const pdf = await read('/DEMO/FileStore/report.pdf')
  t.equal(pdf.type, 'application/pdf')
  const table = Number(/startxref\n(\d+)/.exec(pdf.bytes.toString('latin1'))?.[1])
  t.equal(pdf.bytes.toString('latin1', table, table + 4), 'xref')
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, at) => at))
  const sent = await fetch(`${sandbox.url}/DEMO/FileStore`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${sandbox.issueTokens('alice').access_token}`,
      'content-type': 'image/webp',
    },
    body: bytes,
  })
  t.equal(sent.status, 201)
  t.match(await sent.json(), { wType: 'File', type: 'image/webp', bytes: 256 })
  t.strictSame(await read(sent.headers.get('location') ?? ''), { type: 'image/webp', bytes })
  t.equal((await call('GET', '/DEMO/FileStore/none', undefined)).status, 404)
})

t.test('declared operations leave the own addresses of the sandbox as they are', async (t) => {
  const operations = [
    ['GET', '/oauth/authorize'],
    ['POST', '/oauth/token'],
    ['GET', '/_sandbox/faults'],
    ['PUT', '/:account/Infrastructure/Site/:id'],
    ['GET', '/:account/flux'],
    ['GET', '/:account/things'],
  ].map(([method = '', url = ''], at) => ({ name: `Declared${at}`, method, url }))
  for (const resourcePath of ['', '/api']) {
    const sandbox = await startSandbox(t, { operations, resourcePath })
    t.match(await (await fetch(`${sandbox.url}/_sandbox/faults`)).json(), { expiresIn: 'truth' })
    const { access_token } = sandbox.issueTokens('alice')
    const headers = { authorization: `Bearer ${access_token}` }
    const read = async (path: string) => (await fetch(`${sandbox.baseUrl}${path}`, { headers })).json()
    t.match(await read('/DEMO/things'), { wType: 'Echo', operation: 'Declared5' })
    t.notMatch(await read('/DEMO/flux'), { wType: 'Echo' })
  }
})

t.test('an echo comes in the type that is asked for, whatever was sent', async (t) => {
  const operations = [{ name: 'AddThing', method: 'POST', url: '/:wac/things' }]
  const sandbox = await startSandbox(t, { operations })
  const { access_token } = sandbox.issueTokens('alice')
  const ask = (query: string, headers: Record<string, string>) =>
    fetch(`${sandbox.url}/DEMO/things${query}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${access_token}`, ...headers },
      body: Buffer.from([0xff, 0xfe, 0x00]),
    })
  t.match(await (await ask('?a=1', {})).json(), { wType: 'Echo', query: { a: '1' }, body: { bytes: 3 } })
  t.match(
    await (await ask('?a=1&b=2&a=3', {})).json(),
    { query: { a: ['1', '3'], b: '2' } },
    'each value of a list',
  )
  t.equal(
    await (await ask('?format=CSV', {})).text(),
    'wType,operation,method,path\r\nEcho,AddThing,POST,/DEMO/things\r\n',
  )
  for (const [query, accept, type] of [
    ['?format=CSV', '*/*', 'text/csv'],
    ['', 'application/xml', 'application/xml'],
    ['', 'image/png', 'image/png'],
    ['', 'application/pdf', 'application/pdf'],
    ['', '*/*', 'application/json'],
  ] as const) {
    const answer = await ask(query, { accept })
    t.equal(answer.status, 200)
    t.match(answer.headers.get('content-type'), type, `${query} ${accept}`)
  }
})

t.test('a parent may be any integer', async (t) => {
  const { call } = await startSites(t)
  for (const parentInfrastructureID of [0, -1, 9_007_199_254_740_991])
    t.match(await (await call('PUT', SITE, { parentInfrastructureID })).json(), { parentInfrastructureID })
  t.equal((await call('PUT', SITE, { parentInfrastructureID: 1.5 })).status, 400)
})
