import { readFileSync } from 'node:fs'
import t from 'tap'
import { problem } from '../../src/errors.ts'
import { hooks } from '../../src/http/hooks.ts'
import { openApi, parameters } from '../../src/http/openapi.ts'
import { createServer } from '../../src/http/server.ts'
import { createLog } from '../../src/log.ts'
import { configOf } from '../config/environment.ts'
import { type Bff, startBff, startSandbox } from '../helpers/system.ts'

/** Each operation that the description names, with its path as it stands there. */
async function described(bff: Bff): Promise<string[]> {
  const { paths } = (await bff.browser().fetch('/openapi.json')).json() as { paths: Record<string, object> }
  return Object.entries(paths)
    .flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`))
    .sort()
}

const ALWAYS = [
  'GET /auth/client.d.ts',
  'GET /auth/client.js',
  'GET /auth/login',
  'GET /auth/session',
  'GET /flux/{fluxId}',
  'GET /flux/{wac}/{fluxId}',
  'GET /openapi.json',
  'HEAD /auth/client.d.ts',
  'HEAD /auth/client.js',
  'HEAD /auth/session',
  'HEAD /flux/{fluxId}',
  'HEAD /flux/{wac}/{fluxId}',
  'HEAD /openapi.json',
  'POST /auth/logout',
  'POST /auth/session',
  'POST /site',
  'POST /site.json',
  'PUT /site/{siteId}',
  'PUT /site/{wac}/{siteId}',
]

for (const [env, more] of [
  [{}, ['GET /auth/callback/{nonce}']],
  [{ OAUTH_REDIRECT: 'fixed' }, ['GET /auth/callback']],
  [{ OAUTH_FLOWS: 'code,password' }, ['GET /auth/callback/{nonce}', 'POST /auth/password']],
  [{ OAUTH_FLOWS: 'token' }, ['GET /auth/callback/{nonce}', 'POST /auth/callback/{nonce}']],
  [{ OAUTH_FLOWS: 'token', OAUTH_REDIRECT: 'fixed' }, ['GET /auth/callback', 'POST /auth/callback/{nonce}']],
] as const) {
  t.test(`OpenAPI lists exactly the served operations: ${JSON.stringify(env)}`, async (t) => {
    const bff = await startBff(t, await startSandbox(t), { ...env })
    const operations = await described(bff)
    t.strictSame(operations, [...ALWAYS, ...more].sort())
    for (const operation of operations) {
      const [method, path] = operation.split(' ') as [string, string]
      const target = path.replace(/\{nonce\}/, 'A'.repeat(43)).replace(/\{\w+\}/g, '1')
      const { status } = await bff.browser().fetch(target, { method })
      t.notOk([404, 405].includes(status), `${operation}: ${status}`)
    }
  })
}

t.test('OpenAPI has the version of package.json', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const { info } = (await bff.browser().fetch('/openapi.json')).json() as { info: { version: string } }
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8')
  t.equal(info.version, (JSON.parse(text) as { version: string }).version)
})

t.test('405 allows exactly the methods that OpenAPI lists for a path', async (t) => {
  const bff = await startBff(t, await startSandbox(t), { OAUTH_FLOWS: 'code,token,password' })
  const { paths } = (await bff.browser().fetch('/openapi.json')).json() as { paths: Record<string, object> }
  for (const [path, methods] of Object.entries(paths)) {
    // For other methods this may be a file of the app.
    if (path === '/site.json') continue
    const target = path.replace(/\{nonce\}/, 'A'.repeat(43)).replace(/\{\w+\}/g, '1')
    const { status, headers } = await bff.browser().fetch(target, { method: 'DELETE' })
    t.equal(status, 405, path)
    const allowed = String(headers.allow).split(', ')
    const listed = Object.keys(methods).map((method) => method.toUpperCase())
    t.strictSame(allowed.sort(), listed.sort(), path)
  }
})

t.test('a route is declared once: its description and the 405 of other methods follow', async (t) => {
  const server = createServer(configOf({}), createLog('silent'))
  t.teardown(() => server.close())
  await server.register(hooks, {
    ...{ secure: false, hasOperations: false, accessLog: 'off', log: createLog('silent') },
    observe() {},
    sessionOf: () => null,
    fallback: () => Promise.reject(problem('not_found')),
    navigationPage: () => () => null,
  })
  await server.register(openApi, { publicUrl: 'http://localhost', sessionCookie: 'session' })
  const schema = { operationId: 'more', summary: 'One more', params: parameters({ id: { type: 'string' } }) }
  server.patch('/more/:id', { schema }, (_request, reply) => reply.code(204).send())
  await server.ready()
  const refused = await server.inject({ method: 'GET', url: '/more/1', headers: { host: 'a' } })
  t.equal(refused.statusCode, 405)
  t.equal(refused.headers.allow, 'PATCH')
  const described = server.swagger().paths?.['/more/{id}']
  t.match(described, {
    patch: { operationId: 'more', responses: { 400: {}, default: {} }, parameters: [{ name: 'id' }] },
  })
})

t.test('OpenAPI makes the session optional where the application reads by itself', async (t) => {
  const env = { OAUTH_FLOWS: 'code,client', CLIENT_FLUX_ALLOWED: '*' }
  const bff = await startBff(t, await startSandbox(t), env)
  const { paths } = (await bff.browser().fetch('/openapi.json')).json() as {
    paths: Record<string, { get: { security: object[] } }>
  }
  t.strictSame(paths['/flux/{fluxId}']?.get.security, [{ session: [] }, {}])
})
