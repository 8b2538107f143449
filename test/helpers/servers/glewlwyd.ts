import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { type Teardown, toolPath } from '../child.ts'
import { makeFolder } from '../watchdog.ts'
import { debianEnv } from './packages.ts'
import { createProgram, freeOrigin } from './program.ts'
import { CREDENTIALS, PASSWORD, type RealServer, withBearer } from './real-server.ts'
import type { Visitor } from './visitor.ts'

export const PACKAGES = ['glewlwyd', 'sqlite3']

/** glewlwyd with its plugin for OpenID Connect, on SQLite. */
export async function startGlewlwyd(t: Teardown, root: string, callback: string): Promise<RealServer> {
  const folder = makeFolder('glewlwyd')
  const env = debianEnv(root)
  const { origin, port } = await freeOrigin()
  const file = (name: string) => join(folder, name)
  execFileSync(toolPath('openssl'), ['genrsa', '-out', file('key.pem'), '2048'], { stdio: 'ignore' })
  execFileSync(toolPath('openssl'), ['rsa', '-in', file('key.pem'), '-pubout', '-out', file('pub.pem')], {
    stdio: 'ignore',
  })
  const tables = gunzipSync(readFileSync(join(root, 'usr/share/doc/glewlwyd/database/init.sqlite3.sql.gz')))
  execFileSync('sqlite3', [file('db')], { input: tables, env })
  const plugins = join(root, 'usr/lib/glewlwyd')
  writeFileSync(
    file('glewlwyd.conf'),
    [
      ...[`port=${port}`, 'bind_address="127.0.0.1"', `external_url="${origin}/"`, 'login_url="login.html"'],
      ...['api_prefix="api"', 'log_mode="file"', 'log_level="ERROR"', `log_file="${file('log')}"`],
      ...['cookie_secure=0', 'session_expiration=86400', 'session_key="GLEWLWYD2_SESSION_ID"'],
      ...['admin_session_authentication="cookie"', 'profile_session_authentication="cookie"'],
      ...['login_api_enabled=true', 'admin_scope="g_admin"', 'profile_scope="g_profile"'],
      ...[`user_module_path="${plugins}/user"`, `client_module_path="${plugins}/client"`],
      ...[`user_auth_scheme_module_path="${plugins}/scheme"`, `plugin_module_path="${plugins}/plugin"`],
      `static_files_path="${join(root, 'usr/share/glewlwyd/webapp')}"`,
      'static_files_mime_types=({extension=".html"; mime_type="text/html";})',
      ...['hash_algorithm="SHA512"', `database={type="sqlite3"; path="${file('db')}";};`],
    ].join('\n'),
  )
  const start = createProgram(t)
  await start({
    command: 'glewlwyd',
    args: [`--config-file=${file('glewlwyd.conf')}`],
    env,
    url: `${origin}/api/`,
  })

  const api = await administer(origin)
  await api('POST', '/scope', { name: 'read', password_required: true, scheme: {} })
  await api('POST', '/client', {
    ...{ client_id: CREDENTIALS.CLIENT_ID, name: 'the bff', enabled: true, confidential: true },
    ...{ password: CREDENTIALS.CLIENT_SECRET, client_secret: CREDENTIALS.CLIENT_SECRET },
    ...{ redirect_uri: [callback], authorization_type: ['code', 'refresh_token'], scope: [] },
    token_endpoint_auth_method: ['client_secret_post', 'client_secret_basic'],
  })
  for (const username of ['alice', 'bob'])
    await api('POST', '/user', {
      ...{ username, password: PASSWORD, name: username, enabled: true },
      scope: ['g_profile', 'openid', 'read'],
    })
  const setLife = async (seconds: number): Promise<void> => {
    // At first there is none.
    await api('DELETE', '/mod/plugin/oidc').catch(() => {})
    await api('POST', '/mod/plugin', {
      ...{ module: 'oidc', name: 'oidc', display_name: 'oidc' },
      parameters: {
        ...{ iss: `${origin}/api/oidc`, 'jwt-type': 'rsa', 'jwt-key-size': '256' },
        ...{ key: readFileSync(file('key.pem'), 'utf8'), cert: readFileSync(file('pub.pem'), 'utf8') },
        ...{ 'access-token-duration': seconds, 'refresh-token-duration': 86_400, 'code-duration': 600 },
        ...{ 'allow-non-oidc': true, 'auth-type-code-enabled': true, 'auth-type-refresh-enabled': true },
        ...{ 'auth-type-token-enabled': false, 'auth-type-id-token-enabled': true },
        ...{ 'pkce-allowed': true, 'introspection-revocation-allowed': true, 'subject-type': 'public' },
        ...{
          'introspection-revocation-allow-target-client': true,
          'introspection-revocation-auth-scope': [],
        },
      },
    })
  }
  await setLife(600)

  const json = (visitor: Visitor, method: string, path: string, body?: object) =>
    visitor.send(method, `${origin}/api${path}`, body === undefined ? undefined : JSON.stringify(body))
  return {
    origin,
    env: CREDENTIALS,
    accounts: ['alice', 'bob'],
    guard: withBearer(`${origin}/api/oidc/userinfo`),
    async decide(visitor, authorizeUrl, { account, accepts }) {
      // Its page is a script: these are the calls that it makes.
      const page = await visitor.go(authorizeUrl)
      if (page.isBack) return page.url
      const scope = new URL(authorizeUrl).searchParams.get('scope')
      await json(visitor, 'POST', '/auth/', { username: account, password: PASSWORD })
      await json(visitor, 'PUT', `/auth/grant/${CREDENTIALS.CLIENT_ID}`, { scope: accepts ? scope : '' })
      const next = await visitor.go(`${authorizeUrl}&g_continue`)
      return next.isBack ? next.url : null
    },
    async withdraw(visitor) {
      const answer = await json(visitor, 'GET', '/oidc/token?limit=200')
      const tokens = (await answer.json()) as { token_hash: string; enabled: boolean }[]
      for (const { token_hash } of tokens.filter(({ enabled }) => enabled))
        await json(visitor, 'DELETE', `/oidc/token/${encodeURIComponent(token_hash)}`)
    },
    setLife,
  }
}

async function administer(origin: string) {
  const signedIn = await fetch(`${origin}/api/auth/`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ username: 'admin', password: 'password' }),
  })
  const cookie = signedIn.headers.getSetCookie().map((line) => line.split(';')[0])
  return async (method: string, path: string, body?: object): Promise<void> => {
    const answer = await fetch(`${origin}/api${path}`, {
      method,
      headers: { cookie: cookie.join('; '), 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    if (!answer.ok) throw new Error(`glewlwyd: ${method} ${path}: ${answer.status} ${await answer.text()}`)
  }
}
