import t from 'tap'
import { VERSION } from '../../src/version.ts'
import { shared } from '../helpers/shared.ts'
import type { Bff } from '../helpers/system.ts'

interface Document {
  info: { version: string }
  paths: Record<string, Record<string, { security?: object[] }>>
}

const documentOf = async (bff: Bff) =>
  (await bff.browser().fetch('/openapi.json')).json() as unknown as Document

/** An address of a described path. */
const at = (path: string): string => path.replace(/\{nonce\}/, 'A'.repeat(43)).replace(/\{\w+\}/g, '1')

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
    const { paths } = await documentOf(bff)
    const operations = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    )
    t.strictSame(operations.sort(), [...ALWAYS, ...more].sort())
    for (const operation of operations) {
      const [method, path] = operation.split(' ') as [string, string]
      const { status } = await bff.browser().fetch(at(path), { method })
      t.notOk([404, 405].includes(status), `${operation}: ${status}`)
    }
  })
}

t.test('OpenAPI has the version, and makes the session optional where the application reads', async (t) => {
  const env = { OAUTH_FLOWS: 'code,client', CLIENT_FLUX_ALLOWED: '*' }
  const { bff } = await shared(env)
  const { info, paths } = await documentOf(bff)
  t.equal(info.version, VERSION)
  t.strictSame(paths['/flux/{fluxId}']?.get?.security, [{ session: [] }, {}])
})
