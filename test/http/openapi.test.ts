import { readFileSync } from 'node:fs'
import t from 'tap'
import { PASSWORD_FLOW } from '../../src/login/password-flow.ts'
import { TOKEN_FLOW } from '../../src/login/token-flow.ts'
import { SITE_BODY_SCHEMA } from '../../src/proxy/update-site.ts'
import { type Bff, startBff, startSandbox } from '../helpers/system.ts'

/** Each operation that the description names, with its path as it stands there. */
async function described(bff: Bff): Promise<string[]> {
  const { paths } = (await bff.browser().fetch('/openapi.json')).json() as { paths: Record<string, object> }
  return Object.entries(paths)
    .flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`))
    .sort()
}

const ALWAYS = [
  'GET /auth/login',
  'GET /auth/session',
  'GET /flux/{fluxId}',
  'GET /flux/{wac}/{fluxId}',
  'GET /openapi.json',
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

t.test('OpenAPI makes the session optional where the application reads by itself', async (t) => {
  const env = { OAUTH_FLOWS: 'code,client', CLIENT_FLUX_ALLOWED: '*' }
  const bff = await startBff(t, await startSandbox(t), env)
  const { paths } = (await bff.browser().fetch('/openapi.json')).json() as {
    paths: Record<string, { get: { security: object[] } }>
  }
  t.strictSame(paths['/flux/{fluxId}']?.get.security, [{ session: [] }, {}])
})

t.test('OpenAPI shows the schemas that request bodies are validated with', async (t) => {
  const bff = await startBff(t, await startSandbox(t), { OAUTH_FLOWS: 'code,token,password' })
  const { components } = (await bff.browser().fetch('/openapi.json')).json() as {
    components: { schemas: Record<string, object> }
  }
  // Words for people are in the description alone.
  const judged = (schema: unknown): unknown =>
    JSON.parse(
      JSON.stringify(schema, (name, value) =>
        ['description', 'writeOnly'].includes(name) && typeof value !== 'object' ? undefined : value,
      ),
    )
  for (const [name, schema] of [
    ['SiteUpdate', SITE_BODY_SCHEMA],
    ['PasswordSignIn', PASSWORD_FLOW.openApi.schemas.PasswordSignIn],
    ['FragmentResponse', TOKEN_FLOW.openApi.schemas.FragmentResponse],
  ] as const) {
    t.same(judged(components.schemas[name]), judged(schema), name)
  }
})
