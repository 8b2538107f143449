import { generateKeyPairSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import t from 'tap'
import { parseConfig } from '../../src/config/config.ts'
import { BASE, CERTIFICATE, type Env, faultsOf, SESSION_SECRET } from './environment.ts'

const COMPOSE = readFileSync(new URL('../../docker-compose.yml', import.meta.url), 'utf8')
const TRY_OUT_SECRET = /SESSION_SECRET: \$\{SESSION_SECRET:-(.+)\}/.exec(COMPOSE)?.[1] ?? ''
const TRACED = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' }

t.test('each fault is found alone and begins with the name of its variable', async (t) => {
  const dir = t.testdir({ 'file.txt': 'text', 'broken.pem': CERTIFICATE.replace('MIIB', 'AAAA') })
  const cases: [name: string, values: string | string[] | undefined, says: RegExp, others?: Env][] = [
    ['BASE_URL', undefined, /is required/],
    ['CLIENT_ID', '', /is required/],
    ['BASE_URL', 'api.example.com', /begins with https:.*"api\.example\.com"/],
    ['BASE_URL', ['ftp://api.example.com', 'https:api.example.com'], /begins with https:/],
    ['BASE_URL', ['https://api.example.com\\v1', 'https://api.example.com:99999'], /begins with https:/],
    ['BASE_URL', ['https://api.example.com?key=1', 'https://api.example.com/?'], /query or a fragment/],
    ['BASE_URL', 'https://api.example.com/#', /query or a fragment/],
    ['BASE_URL', 'https://user@api.example.com', /user name/],
    ['BASE_URL', 'http://api.example.com', /must be https unless .*"http:\/\/api\.example\.com"/],
    ['BASE_URL', 'HTTP://api.example.com', /must be https unless/],
    ['PUBLIC_URL', 'http://app.example.com', /must be https unless/],
    ['AUTH_URL', ['http://127.0.0.1.example.com', 'http://localhost.example.com'], /must be https unless/],
    ['PUBLIC_URL', ['https://app.example.com/app', 'https://app.example.com//'], /must have no path/],
    ['CLIENT_ID', ' client', /printable ASCII/],
    ['CLIENT_SECRET', 'two\nlines', /line breaks/],
    [
      'SESSION_SECRET',
      ['short', 's'.repeat(31), '\u{1f511}'.repeat(31)],
      /at least 32 characters; .*openssl rand -base64 48/,
    ],
    ['SESSION_SECRET', [`${SESSION_SECRET},short`, `${SESSION_SECRET},`], /characters \(secret 2 of 2\)/],
    ['SESSION_SECRET', `${SESSION_SECRET}, ${SESSION_SECRET}`, /the same secret twice/],
    ['SESSION_SECRET', `${SESSION_SECRET}\r`, /line breaks/],
    ['SESSION_SECRET', TRY_OUT_SECRET, /of docker-compose\.yml, which everyone knows/],
    ['OAUTH_AUTHORIZE_URL', 'oauth/authorize', /begins with https:/],
    ['OAUTH_TOKEN_URL', 'http://auth.example.com/token', /must be https unless/],
    ['OAUTH_AUTHORIZE_URL', 'https://auth.example.com/a?state=1', /the parameter state in its query/],
    [
      'OAUTH_AUTHORIZE_URL',
      'https://auth.example.com/a?x=1&code%5Fchallenge=',
      /parameter code_challenge in/,
    ],
    [
      'OAUTH_AUTHORIZE_URL',
      ['https://auth.example.com/a?b#', 'https://auth.example.com/a?ä'],
      /visible ASCII/,
    ],
    [
      'OAUTH_TOKEN_URL',
      'https://auth.example.com/t?client_secret=',
      /the parameter client_secret in its query/,
    ],
    ['OAUTH_TOKEN_URL', 'https://auth.example.com/t#a', /query or a fragment/],
    [
      'OAUTH_REVOCATION_URL',
      ['https://auth.example.com/revoke#', 'https://a.example/?b'],
      /query or a fragment/,
    ],
    [
      'OAUTH_END_SESSION_URL',
      'https://auth.example.com/logout?client_id=x',
      /the parameter client_id in its/,
    ],
    ['OAUTH_END_SESSION_URL', 'http://auth.example.com/logout', /must be https unless/],
    ['OAUTH_CLIENT_AUTH', 'client_secret_basic', /one of `post`, `basic`/],
    [
      'OAUTH_AUTHORIZE_PARAMS',
      ['prompt', '?prompt=consent', 'a=1&', '&a=1', '=1', 'a=b c', 'a=1#'],
      /as a query/,
    ],
    ['OAUTH_AUTHORIZE_PARAMS', 'scope=openid', /must not set scope: this server does/],
    ['OAUTH_AUTHORIZE_PARAMS', 'a=1&st%61te=2', /must not set state: this server does/],
    ['OAUTH_AUTHORIZE_PARAMS', 'a=1&b=2&a=3', /has the parameter "a" twice/],
    ['OAUTH_AUTHORIZE_PARAMS', Array.from('abcdefghijklmnopq', (name) => `${name}=`).join('&'), /at most 16/],
    [
      'OAUTH_AUTHORIZE_PARAMS',
      'tenant=b',
      /has the parameter "tenant" of OAUTH_AUTHORIZE_URL again/,
      { OAUTH_AUTHORIZE_URL: 'https://auth.example.com/a?tenant=a' },
    ],
    ['OAUTH_ISSUER', 'http://auth.example.com', /must be https unless/],
    ['OAUTH_SCOPE', 'one  two', /single spaces/],
    ['OAUTH_SCOPE', 'say"so"', /one or more scopes/],
    ['OAUTH_FLOWS', 'implicit', /number 1 must be one of `code`, `token`, .*, but is "implicit"/],
    ['OAUTH_FLOWS', 'code,', /number 2 is empty/],
    ['CLIENT_FLUX_ALLOWED', undefined, /is required with the client flow/, { OAUTH_FLOWS: 'code,client' }],
    ['CLIENT_FLUX_ALLOWED', 'DEMO', /of the form `wac\/fluxId`, but is "DEMO"/, { OAUTH_FLOWS: 'client' }],
    ['CLIENT_FLUX_ALLOWED', ['DEMO/..', 'DEMO/.', 'DEMO/a/b'], /of the form/, { OAUTH_FLOWS: 'client' }],
    ['CLIENT_FLUX_ALLOWED', `DEMO/${'x'.repeat(129)}`, /of the form/, { OAUTH_FLOWS: 'client' }],
    ['CLIENT_FLUX_ALLOWED', 'DEMO/a,*', /number 2 must be of the form/, { OAUTH_FLOWS: 'client' }],
    ['OAUTH_REDIRECT', 'Fixed', /one of `per-login`, `fixed`/],
    [
      'OAUTH_REFUSED_GRANT',
      ['399:empty', '500:empty', '429:empty'],
      /number 1 must have a status from 400 to/,
    ],
    ['OAUTH_REFUSED_GRANT', ['400', '400:', 'empty', '400:a-b', '400:A'], /number 1 must be `STATUS:CODE`/],
    ['OAUTH_REFUSED_GRANT', `400:${'a'.repeat(65)}`, /number 1 must be `STATUS:CODE`/],
    ['OAUTH_REFUSED_GRANT', '400:empty,401:invalid_client', /number 2 must not name invalid_client/],
    ['OAUTH_REFUSED_GRANT', '400:unauthorized_client', /must not name unauthorized_client.*CLIENT_SECRET/],
    ['TOKEN_TIMEOUT_MS', '99', /from 100 to 60000, but is "99"/],
    ['TOKEN_TIMEOUT_MS', '60001', /from 100 to 60000/],
    ['REDIS_URL', undefined, /is required unless SESSION_STORE=memory/],
    ['REDIS_CA_FILE', `${dir}/none.pem`, /can be read, but .* \(ENOENT\)/, { REDIS_URL: 'rediss://redis' }],
    ['REDIS_CA_FILE', `${dir}/file.txt`, /holds none/, { REDIS_URL: 'rediss://redis' }],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4318', /begins with https:.*"collector:4318"/],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'http://user:pass@collector', /must not hold an @/],
    ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'http://collector?key=1', /query or a fragment/],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc', /one of `http\/protobuf`, `http\/json`, but is "grpc"/, TRACED],
    ['OTEL_EXPORTER_OTLP_HEADERS', ['a header=x', 'key=%0a', 'key=%'], /each a header field/, TRACED],
    ['OTEL_EXPORTER_OTLP_CERTIFICATE', `${dir}/file.txt`, /holds none/, TRACED],
    ['OTEL_EXPORTER_OTLP_CLIENT_KEY', `${dir}/file.txt`, /without a passphrase/, TRACED],
    ['OTEL_SERVICE_NAME', 'two\nlines', /printable ASCII/, TRACED],
    ['OTEL_RESOURCE_ATTRIBUTES', ['a=b=c', 'a=b,=c'], /of `name=value`, values percent-encoded/, TRACED],
    ['OTEL_TRACES_SAMPLER_ARG', '1.1', /a number from 0 to 1/, TRACED],
    ['REDIS_CERT_FILE', `${dir}/file.txt`, /holds none/, { REDIS_URL: 'rediss://redis' }],
    ['REDIS_KEY_FILE', `${dir}/file.txt`, /holds none/, { REDIS_URL: 'rediss://redis' }],
    ['REDIS_KEY_FILE', `${dir}/none.pem`, /\(ENOENT\)/, { REDIS_URL: 'rediss://redis' }],
    ['REDIS_CA_FILE', `${dir}/broken.pem`, /one that cannot be read/, { REDIS_URL: 'rediss://redis' }],
    ['REDIS_PREFIX', '{bff}:', /1 to 64 of/],
    ['WAC', ['a/b', 'x'.repeat(65)], /account code/],
    ['WAC', 'OTHER', /must be one of WAC_ALLOWED, but is "OTHER"/, { WAC_ALLOWED: 'DEMO,ACME' }],
    ['WAC_ALLOWED', 'DEMO,a b', /number 2 must be an account code/],
    ['BODY_LIMIT_BYTES', '64kb', /from 256 to 10485760, but is "64kb"/],
    ['HOST', ['[::1]', 'a..b', 'a host'], /host name or an IP address \(IPv6 without brackets\)/],
    ['PORT', ['65536', '-1', '3e3', '80.5', ' 80'], /from 0 to 65535, but is "/],
    ['OPS_PORT', '3000', /must not be the same as PORT, but both are 3000/],
    ['TRUST_PROXY', ['true', '1', 'proxy.example.com', 'loopback', '10.0.0.0/33'], /an IP address or a CIDR/],
    ['TRUST_PROXY', ['10.0.0.0/255.0.0.0', '2001:db8::/129'], /an IP address or a CIDR/],
    ['TRUST_PROXY', ['0.0.0.0/0', '::/0'], /prefix of at least 1/],
    ['TRUST_PROXY', '10.0.0.1,fe80::1%eth0', /number 2 must be an IP address/],
    ['STATIC_DIR', [`${dir}/none`, `${dir}/file.txt`, dir], /a directory with an index.html/],
    ['STATIC_CSP', "script-src 'unsafe-inline'", /inline script or eval.*script-src has "'unsafe-inline'"/],
    ['STATIC_CSP', "img-src a.example; Script-Src 'UNSAFE-EVAL'", /script-src has "'UNSAFE-EVAL'"/],
    ['STATIC_CSP', ["script-src 'nonce-abc'", "script-src 'strict-dynamic'"], /inline script or eval/],
    ['STATIC_CSP', `style-src 'sha256-${'a'.repeat(43)}='`, /hash in style-src.*would forbid all others/],
    ['STATIC_CSP', `default-src 'sha256-${'a'.repeat(43)}='`, /hashes in script-src alone/],
    ['STATIC_CSP', "script-src 'sha256-abc='", /whole hashes/],
    ['STATIC_REFERRER_POLICY', 'unsafe-url', /must be one of `same-origin`.*"unsafe-url"/],
    ['STATIC_CSP', ["script-src 'unsafe-hashes'", "connect-src 'unsafe-eval'"], /inline script or eval/],
    ['STATIC_CSP', 'script-src data:', /inline script or eval.*takes only hosts.*"data:"/],
    ['STATIC_CSP', ['script-src blob:', 'script-src https:', 'script-src https://*'], /takes only hosts/],
    ['STATIC_CSP', 'script-src *', /takes only hosts/],
    ['STATIC_CSP', "default-src 'unsafe-inline'", /inline script or eval.*default-src has/],
    ['STATIC_CSP', 'script-src-attr https://a.example', /must name directives of.*"script-src-attr"/],
    ['STATIC_CSP', 'frame-ancestors https://a.example', /must name directives of.*"frame-ancestors"/],
    ['STATIC_CSP', 'report-uri /csp', /must name directives of.*"report-uri"/],
    ['STATIC_CSP', 'https://tiles.example', /must name directives of/],
    ['STATIC_CSP', 'img-src', /img-src has none/],
    ['STATIC_CSP', 'img-src a.example; img-src b.example', /repeats img-src/],
    ['STATIC_CSP', 'img-src self', /keywords in single quotes.*"self"/],
    ['STATIC_CSP', 'img-src a.example, b.example', /sources such as/],
    ['STATIC_CSP', ['img-src a.example\nX-Evil: 1', 'img-src a.example\r\n'], /one line of ASCII/],
    ['STATIC_PERMISSIONS_POLICY', "geolocation 'self'", /geolocation=\(self\).*has "geolocation 'self'"/],
    ['STATIC_PERMISSIONS_POLICY', 'camera=()\r\nX-Evil: 1', /Permissions-Policy/],
    ['STATIC_PERMISSIONS_POLICY', 'camera=(),\nusb=()', /Permissions-Policy in one line/],
    ['STATIC_PERMISSIONS_POLICY', 'camera=(),\u00a0usb=()', /Permissions-Policy in one line/],
    ['STATIC_PERMISSIONS_POLICY', 'usb=("https://a.example""https://b.example")', /has "usb=/],
    ['STATIC_PERMISSIONS_POLICY', ['usb=(self"https://a.example")', 'usb=("https://a\\b")'], /has "usb=/],
    ['LOG_LEVEL', 'verbose', /one of `trace`/],
    ['ALLOW_INSECURE_HTTP', 'yes', /one of `true`, `false`, but is "yes"/],
  ]
  for (const [name, values, says, others] of cases) {
    for (const value of [values].flat()) {
      const faults = faultsOf({ ...others, [name]: value })
      t.equal(faults.length, 1, `${name}=${value} is one fault: ${faults.join(' | ')}`)
      t.ok(faults[0]?.startsWith(`${name} `), `the fault of ${name}=${value} begins with the name`)
      t.match(faults[0], says)
    }
  }
})

t.test('the secret of docker-compose.yml is accepted on this machine alone', async (t) => {
  const local = { SESSION_SECRET: TRY_OUT_SECRET, PUBLIC_URL: 'http://localhost:3000' }
  t.strictSame(faultsOf(local), [])
  t.match(faultsOf({ ...local, PUBLIC_URL: 'https://app.example.com' }), [/^SESSION_SECRET /])
})

t.test('a private key in the place of its path is not printed', async (t) => {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const pem = privateKey.export({ type: 'sec1', format: 'pem' }).toString()
  for (const name of ['REDIS_KEY_FILE', 'OTEL_EXPORTER_OTLP_CLIENT_KEY']) {
    const faults = faultsOf({ REDIS_URL: 'rediss://redis', ...TRACED, [name]: pem })
    t.match(faults, [/must be a file that can be read/])
    t.notMatch(faults[0], pem.split('\n')[1]!.slice(0, 8))
  }
})

t.test('a malformed permission of plain http hides no address that lacks it', async (t) => {
  const faults = faultsOf({ ALLOW_INSECURE_HTTP: 'maybe', AUTH_URL: 'http://auth.example.com' })
  t.match([...faults].sort(), [/^ALLOW_INSECURE_HTTP /, /^AUTH_URL must be https/])
})

t.test('each faulty entry of a list is a fault', async (t) => {
  for (const [name, value, count] of [
    ['SESSION_SECRET', `short,${SESSION_SECRET},shorter`, 2],
    ['OAUTH_FLOWS', 'x,code,', 2],
    ['TRUST_PROXY', 'true,10.0.0.1,1', 2],
    ['CLIENT_FLUX_ALLOWED', 'a,b/c,d', 2],
    ['STATIC_CSP', "bogus x; script-src *; img-src 'self'", 2],
  ] as const) {
    const faults = faultsOf({ [name]: value })
    t.equal(faults.length, count, faults.join(' | '))
    t.ok(faults.every((fault) => fault.startsWith(`${name} `)))
  }
})

t.test('a faulty entry of a list hides no fault between it and other variables', async (t) => {
  const folder = t.testdir({
    'account.json': JSON.stringify({
      operations: { Read: { method: 'GET', path: '/WUM', account: 'none' } },
    }),
    'client.json': JSON.stringify({
      operations: { Own: { method: 'GET', path: '/{wac}/zones', application: true } },
    }),
    'token.json': JSON.stringify({
      operations: { Token: { method: 'GET', path: '/oauth/token', account: 'none' } },
    }),
  })
  const tryOut = 'known-to-everybody-and-only-for-the-try-out'
  for (const [env, says] of [
    [
      { OPERATIONS_FILE: `${folder}/account.json`, WAC_ALLOWED: 'DE MO' },
      /Read\/account must not be "none" while/,
    ],
    [{ OAUTH_FLOWS: 'client,x' }, /^CLIENT_FLUX_ALLOWED is required/],
    [
      { OAUTH_AUTHORIZE_URL: 'https://auth.example.com/a?a=1', OAUTH_AUTHORIZE_PARAMS: 'a=2&state=x' },
      /^OAUTH_AUTHORIZE_PARAMS has the parameter "a" of/,
    ],
    [{ SESSION_SECRET: `${tryOut},short` }, /^SESSION_SECRET is that of docker-compose.yml/],
  ] as const) {
    const faults = faultsOf(env)
    t.equal(faults.length, 2, faults.join(' | '))
    t.match(faults[1], says)
  }
  const oneOrigin = { BASE_URL: 'https://a.test', AUTH_URL: 'https://a.test' }
  const unsure = [
    { OPERATIONS_FILE: `${folder}/client.json`, OAUTH_FLOWS: 'code,clinet' },
    { WAC: 'DEMO', WAC_ALLOWED: 'ACME,DE MO' },
    { OPERATIONS_FILE: `${folder}/token.json`, ...oneOrigin, OAUTH_TOKEN_URL: 'x' },
  ]
  for (const env of unsure)
    t.equal(faultsOf(env).length, 1, 'no fault that the repair of the first may remove')
})

t.test('all faults of one URL are listed at once, without a password in it', async (t) => {
  const token = 'https://auth.example.com/token'
  const cases: [env: Env, says: RegExp[]][] = [
    [
      { BASE_URL: 'http://hal:s3cret@api.example.com/?x=1' },
      [/must not hold an @/, /must not have a query/, /must be https unless .*"http:\/\/api\.example\.com"/],
    ],
    [
      { BASE_URL: 'ftp://hal:s3cret@api.example.com' },
      [/must not hold an @/, /begins with https:\/\/ \(or http:\/\/\)$/],
    ],
    [{ BASE_URL: 'https://hal:s3?cret@api.example.com' }, [/must not hold an @/]],
    [{ PUBLIC_URL: 'https://app.example.com/page#top' }, [/must not have a query/, /must have no path$/]],
    [
      { OAUTH_TOKEN_URL: `${token}?code=1&scope=x#top` },
      [/visible ASCII/, /the parameter code in its query/, /the parameter scope in its query/],
    ],
    [
      { OAUTH_TOKEN_URL: 'http://hal@auth.example.com/token?code=1' },
      [/must not hold an @/, /the parameter code in its query/, /must be https unless/],
    ],
    [{ OAUTH_TOKEN_URL: 'https://hal:s3?cret@auth.example.com/token' }, [/must not hold an @/]],
    [
      { OAUTH_REVOCATION_URL: 'http://auth.example.com/revoke?x' },
      [/must not have a query/, /must be https unless/],
    ],
  ]
  for (const [env, says] of cases) {
    const faults = faultsOf(env)
    t.match(faults, says, JSON.stringify(env))
    t.equal(faults.length, says.length, JSON.stringify(env))
    for (const fault of faults) t.notMatch(fault, /hal|s3/)
  }
})

t.test('all faults are listed at once, also those between variables', async (t) => {
  const parsed = parseConfig({ PORT: 'x', LOG_LEVEL: 'x', WAC: 'A', WAC_ALLOWED: 'B' })
  if (parsed.ok) throw new Error('accepted')
  const names = parsed.faults.map((fault) => fault.split(' ')[0])
  const required = Object.keys(BASE)
  t.strictSame(names.sort(), [...required, 'LOG_LEVEL', 'PORT', 'WAC'].sort())
})
