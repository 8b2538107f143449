// Apache with mod_auth_openidc, the usual OpenID Connect module for Apache; its sessions
// are in Redis.
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { findProgram } from '../places.mjs'
import { freePort } from '../processes.mjs'
import { get, manyTimes, signIn } from '../sign-in.mjs'

const MODULES = '/usr/lib/apache2/modules'
const USED = {
  mpm_event: 'mod_mpm_event',
  authn_core: 'mod_authn_core',
  authz_core: 'mod_authz_core',
  authz_user: 'mod_authz_user',
  headers: 'mod_headers',
  proxy: 'mod_proxy',
  proxy_http: 'mod_proxy_http',
  auth_openidc: 'mod_auth_openidc',
}

export const apache = {
  name: 'apache',
  title: 'Apache + mod_auth_openidc (Redis)',
  program: 'apache2',
  isThere: () => existsSync(join(MODULES, 'mod_auth_openidc.so')),
  async start(services) {
    const port = await freePort()
    const url = `http://127.0.0.1:${port}`
    const folder = join(services.folder, 'apache')
    mkdirSync(folder, { recursive: true })
    const file = join(folder, 'apache.conf')
    writeFileSync(file, configuration({ port, url, folder, services }))
    const { pid, stop } = await services.processes.start(
      findProgram('apache2'),
      ['-f', file, '-DFOREGROUND'],
      {
        core: 'server',
        ready: () => get(url, {}),
      },
    )
    const cookies = await manyTimes(services.sessions, () => signIn(`${url}/flux/small/s1`))
    return { pid, url, cookies, stop }
  },
}

function configuration({ port, url, folder, services }) {
  const loaded = Object.entries(USED).map(([name, file]) => `LoadModule ${name}_module ${MODULES}/${file}.so`)
  return `
ServerRoot ${folder}
ServerName 127.0.0.1
Listen 127.0.0.1:${port}
PidFile ${folder}/apache.pid
ErrorLog ${folder}/error.log
DefaultRuntimeDir ${folder}
Mutex file:${folder}
${loaded.join('\n')}
${process.getuid?.() === 0 ? 'User www-data\nGroup www-data' : ''}
# A fixed number of processes: those that Apache ends for want of work break connections.
StartServers 2
ServerLimit 2
ThreadsPerChild 64
MaxRequestWorkers 128
MinSpareThreads 1
MaxSpareThreads 128
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 72
OIDCCacheType redis
OIDCRedisCacheServer 127.0.0.1:${services.redisPort}
OIDCProviderMetadataURL ${services.authUrl}/.well-known/openid-configuration
OIDCProviderTokenEndpointAuth client_secret_post
OIDCClientID bench
OIDCClientSecret bench-secret
OIDCRedirectURI ${url}/flux/callback
OIDCCryptoPassphrase a-secret-of-the-benchmark-longer-than-32-characters
OIDCScope openid
OIDCSessionInactivityTimeout 36000
<Location /flux>
  AuthType openid-connect
  Require valid-user
  RequestHeader set Authorization "Bearer %{OIDC_access_token}e"
  ProxyPass ${services.upstreamUrl}/flux keepalive=On
</Location>
`
}
