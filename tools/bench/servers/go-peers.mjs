// Servers of the same kind in Go, as programs that the environment names. Their sessions are in Redis.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { get } from '../browser.mjs'
import { freePort } from '../processes.mjs'

const CLIENT = { id: 'bench', secret: 'bench-secret' }
const SECRET = 'a-secret-of-exactly-32-characters'.slice(0, 32)

/** How to get the programs, for whoever has none. */
export const HOW_TO_GET = `two Go servers are compared by their programs, which are not part of this project:
  BENCH_OAUTH2_PROXY=…   GOBIN=<folder> go install github.com/oauth2-proxy/oauth2-proxy/v7@v7.15.6
  BENCH_WONDERWALL=…     in a clone of github.com/nais/wonderwall: go build -o <file> ./cmd/wonderwall`

export const OAUTH2_PROXY = process.env.BENCH_OAUTH2_PROXY
export const WONDERWALL = process.env.BENCH_WONDERWALL

export async function startOauth2Proxy(services) {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const file = join(services.processes.folder, 'oauth2-proxy.json')
  writeFileSync(file, JSON.stringify(oauth2ProxyConfiguration(services, port)))
  const flags = {
    'alpha-config': file,
    'email-domain': '*',
    'cookie-secret': SECRET,
    'cookie-secure': false,
    'cookie-refresh': '50m',
    'redirect-url': `${url}/oauth2/callback`,
    'session-store-type': 'redis',
    'redis-connection-url': services.store.url,
    'standard-logging': false,
    'request-logging': false,
    'auth-logging': false,
  }
  const args = Object.entries(flags).map(([name, value]) => `--${name}=${value}`)
  return await startGo(services, OAUTH2_PROXY, { args, url, ready: `${url}/ping` })
}

/** Its plain flags cannot send the access token as a bearer token. JSON is YAML. */
function oauth2ProxyConfiguration({ authUrl, upstreamUrl }, port) {
  return {
    server: { bindAddress: `127.0.0.1:${port}` },
    upstreamConfig: { upstreams: [{ id: 'api', path: '/', uri: upstreamUrl }] },
    injectRequestHeaders: [
      {
        name: 'Authorization',
        values: [{ claimSource: { claim: 'access_token', prefix: 'Bearer ' } }],
      },
    ],
    providers: [
      {
        id: 'bench',
        provider: 'oidc',
        clientID: CLIENT.id,
        clientSecret: CLIENT.secret,
        oidcConfig: { issuerURL: authUrl, emailClaim: 'sub', audienceClaims: ['aud'] },
      },
    ],
  }
}

export async function startWonderwall(services) {
  const port = await freePort()
  const url = `http://localhost:${port}`
  const flags = {
    'bind-address': `127.0.0.1:${port}`,
    'metrics-bind-address': '',
    ingress: url,
    'upstream-host': new URL(services.upstreamUrl).host,
    'log-level': 'error',
    'cookie.secure': false,
    'encryption-key': Buffer.from(SECRET).toString('base64'),
    'openid.client-id': CLIENT.id,
    'openid.client-secret': CLIENT.secret,
    'openid.well-known-url': `${services.authUrl}/.well-known/openid-configuration`,
    'redis.uri': services.store.url,
  }
  const args = Object.entries(flags).map(([name, value]) => `--${name}=${value}`)
  return await startGo(services, WONDERWALL, { args, url, ready: `${url}/oauth2/ping` })
}

/** One core each, as the other candidates have it. */
async function startGo(services, program, { args, url, ready }) {
  const { pid, stop } = await services.processes.start(program, args, {
    core: 'server',
    env: { GOMAXPROCS: '1' },
    ready: () => get(ready),
  })
  return { pid, url, stop }
}
