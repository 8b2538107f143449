// Apache with mod_auth_openidc, the usual OpenID Connect module for Apache; its sessions are in Redis.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { get } from '../browser.mjs'
import { findProgram } from '../machine.mjs'
import { freePort } from '../processes.mjs'

const MODULES = '/usr/lib/apache2/modules'
const USED = 'mpm_event authn_core authz_core authz_user headers proxy proxy_http auth_openidc'
export const APACHE_OIDC = `${MODULES}/mod_auth_openidc.so`

export async function startApache(services) {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const folder = join(services.processes.folder, 'apache')
  mkdirSync(folder, { recursive: true })
  const file = join(folder, 'apache.conf')
  writeFileSync(file, configuration({ port, url, folder, services }))
  const args = ['-f', file, '-DFOREGROUND']
  const options = { core: 'server', ready: () => get(url) }
  const { pid, stop } = await services.processes.start(findProgram('apache2'), args, options)
  return { pid, url, stop }
}

function configuration({ port, url, folder, services }) {
  const loaded = USED.split(' ').map((name) => `LoadModule ${name}_module ${MODULES}/mod_${name}.so`)
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
OIDCRedisCacheServer 127.0.0.1:${services.store.port}
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
