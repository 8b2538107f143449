import t from 'tap'
import { BUILT_IN } from '../../src/config/built-in.ts'
import { problem } from '../../src/errors.ts'
import { openApi, parameters } from '../../src/http/openapi.ts'
import { VERSION } from '../../src/version.ts'
import { shared } from '../helpers/shared.ts'
import type { Bff } from '../helpers/system.ts'
import { withHooks } from './hooks-server.ts'

interface Document {
  info: { version: string }
  paths: Record<string, Record<string, { security?: object[]; summary?: string }>>
}

const nameOf = ({ summary }: { summary?: string }) => summary

const documentOf = async (bff: Bff) =>
  (await bff.browser().fetch('/openapi.json')).json() as unknown as Document

/** An address of a described path. */
const at = (path: string): string => path.replace(/\{nonce\}/, 'A'.repeat(43)).replace(/\{\w+\}/g, '1')

/** Each operation that the description names, with its path as it stands there. */
async function described(bff: Bff): Promise<string[]> {
  const { paths } = await documentOf(bff)
  return Object.entries(paths)
    .flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`))
    .sort()
}

const both = (path: string) => [`GET ${path}`, `HEAD ${path}`]
const ALWAYS = [
  ...['/auth/client.d.ts', '/auth/client.js', '/auth/session', '/openapi.json'].flatMap(both),
  ...['/flux/{fluxId}', '/flux/{wac}/{fluxId}'].flatMap(both),
  ...['GET /auth/login', 'POST /auth/logout', 'POST /auth/session', 'POST /site', 'POST /site.json'],
  ...['PUT /site/{siteId}', 'PUT /site/{wac}/{siteId}'],
]

for (const [env, more] of [
  [{ OAUTH_REDIRECT: 'fixed' }, ['GET /auth/callback']],
  [{ OAUTH_FLOWS: 'code,password' }, ['GET /auth/callback/{nonce}', 'POST /auth/password']],
  [{ OAUTH_FLOWS: 'token' }, ['GET /auth/callback/{nonce}', 'POST /auth/callback/{nonce}']],
  [{ OAUTH_FLOWS: 'token', OAUTH_REDIRECT: 'fixed' }, ['GET /auth/callback', 'POST /auth/callback/{nonce}']],
] as const) {
  t.test(`OpenAPI lists exactly the served operations: ${JSON.stringify(env)}`, async (t) => {
    const { bff } = await shared({ ...env })
    const operations = await described(bff)
    t.strictSame(operations, [...ALWAYS, ...more].sort())
    for (const operation of operations) {
      const [method, path] = operation.split(' ') as [string, string]
      const { status } = await bff.browser().fetch(at(path), { method })
      t.notOk([404, 405].includes(status), `${operation}: ${status}`)
    }
  })
}

t.test('each built-in operation has a route', async (t) => {
  const { bff } = await shared()
  const { paths } = await documentOf(bff)
  const served = new Set(Object.values(paths).flatMap((methods) => Object.values(methods).map(nameOf)))
  for (const { name } of BUILT_IN) t.ok(served.has(name), name)
})

t.test('405 allows exactly the methods that OpenAPI lists for a path', async (t) => {
  const { bff } = await shared({ OAUTH_FLOWS: 'code,token,password' })
  const { info, paths } = await documentOf(bff)
  t.equal(info.version, VERSION)
  for (const [path, methods] of Object.entries(paths)) {
    // For other methods this may be a file of the app.
    if (path === '/site.json') continue
    const { status, headers } = await bff.browser().fetch(at(path), { method: 'DELETE' })
    t.equal(status, 405, path)
    const allowed = String(headers.allow).split(', ')
    const listed = Object.keys(methods).map((method) => method.toUpperCase())
    t.strictSame(allowed.sort(), listed.sort(), path)
  }
})

t.test('a route is declared once: its description and the 405 of other methods follow', async (t) => {
  const { server } = await withHooks(t, () => Promise.reject(problem('not_found')))
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
  const { bff } = await shared(env)
  const { paths } = await documentOf(bff)
  t.strictSame(paths['/flux/{fluxId}']?.get?.security, [{ session: [] }, {}])
})
