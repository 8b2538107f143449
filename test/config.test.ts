import { readFileSync } from 'node:fs'
import t from 'tap'
import { parseConfig } from '../src/config/config.ts'
import { VARIABLE_NAMES } from '../src/config/variables.ts'
import {
  BASE,
  CERTIFICATE,
  configOf,
  faultsOf,
  OTHER_SECRET,
  revealed,
  SESSION_SECRET,
  warningsOf,
} from './config/environment.ts'
import { createCertificate } from './helpers/certificate.ts'
import { makeFolder } from './helpers/watchdog.ts'

/** The configuration of the required variables alone. */
const DEFAULTS = {
  publicUrl: 'https://app.example.com',
  secureCookies: true,
  baseUrl: 'https://api.example.com',
  oauth: {
    authorizeUrl: 'https://auth.example.com/oauth/authorize',
    authorizeParameters: [],
    tokenUrl: 'https://auth.example.com/oauth/token',
    clientAuth: 'post',
    revocationUrl: null,
    endSessionUrl: null,
    issuer: null,
    clientId: 'client-1',
    clientSecret: 'client-secret-value',
    scope: 'https://api.example.com',
    flows: ['code'],
    redirect: 'per-login',
    pkce: true,
    refusedGrants: [],
    tokenTimeoutMs: 10_000,
  },
  egress: { https: null, http: null, exempt: [] },
  clientFluxAllowed: null,
  operations: [],
  identity: null,
  sessionSecrets: [SESSION_SECRET],
  store: {
    kind: 'redis',
    target: {
      kind: 'single',
      address: { host: 'redis', port: 6379 },
      db: 0,
      login: { username: null, password: null },
      tls: false,
    },
    ca: null,
    clientCertificate: null,
    prefix: 'bff:',
  },
  wac: { default: null, allowed: null },
  listen: { host: '0.0.0.0', port: 3000, opsPort: 9464 },
  session: { idleSeconds: 7200, maxSeconds: 43_200, cacheMs: 1_000, isBound: true },
  refresh: { aheadSeconds: 300, thresholdSeconds: 30, concurrency: 64, reuseSeconds: 0 },
  upstream: {
    tokenIn: 'header',
    timeoutMs: 30_000,
    bodyLimitBytes: 65_536,
    headers: [],
    tokenShapes: [],
    via: true,
  },
  loginRatePerMinute: 300,
  trustProxy: [],
  static: null,
  accessLog: 'errors',
  logLevel: 'info',
  shutdownSeconds: 20,
  storeWaitMs: 4_000,
  shutdownDelaySeconds: 0,
  keepAliveSeconds: 72,
  tracing: null,
}

t.test('required variables are enough, and all others have their documented default', async (t) => {
  const parsed = parseConfig({ ...BASE, UNKNOWN_VARIABLE: 'ignored', WAC: '', PORT: '' })
  if (!parsed.ok) throw new Error(parsed.faults.join('\n'))
  t.strictSame(parsed.warnings, [])
  t.strictSame(revealed(parsed.config), DEFAULTS)
})

/** Set by tests of their own: others exclude them, or they change what is not in the configuration. */
const ELSEWHERE = [
  ...['SESSION_STORE', 'REDIS_SENTINEL_PASSWORD', 'OPERATIONS_FILE', 'ALLOW_INSECURE_HTTP'],
  ...['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_SERVICE_NAME', 'OTEL_RESOURCE_ATTRIBUTES'],
  ...['OTEL_TRACES_SAMPLER', 'OTEL_TRACES_SAMPLER_ARG', 'OTEL_TRACES_EXPORTER', 'OTEL_SDK_DISABLED'],
]

t.test('the configuration holds the value of every variable', async (t) => {
  const dir = t.testdir({ 'ca.pem': CERTIFICATE, site: { 'index.html': '' } })
  const own = await createCertificate(makeFolder('certificate'))
  const env = {
    CLIENT_ID: 'client-2',
    CLIENT_SECRET: 'another-secret-value',
    STORE_WAIT_MS: '1500',
    UPSTREAM_HEADERS: '{ "X-Api-Version": "2" }',
    UPSTREAM_INVALID_TOKEN: '403:empty',
    BASE_URL: 'https://API.example.com:8443/v1/',
    AUTH_URL: 'https://auth.example.com/identity/',
    PUBLIC_URL: 'http://LOCALHOST:3000/',
    OAUTH_AUTHORIZE_URL: 'https://auth.example.com/a/?b',
    OAUTH_AUTHORIZE_PARAMS: 'prompt=consent&nonce={random}',
    OAUTH_TOKEN_URL: 'https://auth.example.com/t/',
    OAUTH_CLIENT_AUTH: 'basic',
    OAUTH_REVOCATION_URL: 'https://auth.example.com/r/',
    OAUTH_END_SESSION_URL: 'https://auth.example.com/e?a=b',
    OAUTH_ISSUER: 'https://auth.example.com/',
    OAUTH_SCOPE: 'one two',
    OAUTH_FLOWS: 'code, client',
    CLIENT_FLUX_ALLOWED: 'DEMO/flux-1,DEMO/a.b~c',
    OAUTH_REDIRECT: 'fixed',
    OAUTH_PKCE: 'off',
    OAUTH_REFUSED_GRANT: '400:empty,401:a_b',
    TOKEN_TIMEOUT_MS: '500',
    SESSION_SECRET: `${SESSION_SECRET}, ${OTHER_SECRET}`,
    REDIS_URL: 'rediss://redis/3',
    REDIS_CA_FILE: `${dir}/ca.pem`,
    REDIS_CERT_FILE: own.certFile,
    REDIS_KEY_FILE: own.keyFile,
    REDIS_PREFIX: 'one:',
    SESSION_CACHE_MS: '250',
    SESSION_IDLE_SECONDS: '100',
    SESSION_MAX_SECONDS: '100',
    REFRESH_AHEAD_SECONDS: '20',
    REFRESH_THRESHOLD_SECONDS: '20',
    REFRESH_CONCURRENCY: '8',
    OAUTH_REUSE_SECONDS: '60',
    UPSTREAM_VIA: 'off',
    KEEP_ALIVE_SECONDS: '600',
    SESSION_BINDING: 'off',
    WAC: 'DEMO',
    WAC_ALLOWED: 'DEMO,ACME',
    UPSTREAM_TOKEN_IN: 'query',
    UPSTREAM_TIMEOUT_MS: '1000',
    BODY_LIMIT_BYTES: '1024',
    HTTPS_PROXY: 'https://me:word@proxy',
    HTTP_PROXY: 'http://proxy:3128',
    NO_PROXY: 'a,b',
    HOST: '::1',
    PORT: '0',
    OPS_PORT: '0',
    TRUST_PROXY: '10.0.0.0/8, 192.0.2.7,2001:db8::/32',
    LOGIN_RATE_PER_MINUTE: '0',
    STATIC_DIR: `${dir}/site`,
    STATIC_CSP: 'img-src https://tiles.example',
    STATIC_REFERRER_POLICY: 'strict-origin',
    STATIC_PERMISSIONS_POLICY: 'geolocation=(self)',
    ACCESS_LOG: 'off',
    LOG_LEVEL: 'silent',
    SHUTDOWN_SECONDS: '5',
    SHUTDOWN_DELAY_SECONDS: '7',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/',
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    OTEL_EXPORTER_OTLP_HEADERS: 'x-api-key=a%20b=c, other=',
    OTEL_EXPORTER_OTLP_CERTIFICATE: `${dir}/ca.pem`,
    OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: own.certFile,
    OTEL_EXPORTER_OTLP_CLIENT_KEY: own.keyFile,
  }
  const lacks = VARIABLE_NAMES.filter((name) => !Object.hasOwn(env, name))
  t.strictSame(
    lacks.sort(),
    ELSEWHERE.sort(),
    'each variable has a value in env above, or a place in ELSEWHERE',
  )
  t.strictSame(revealed(configOf(env)), {
    ...DEFAULTS,
    publicUrl: 'http://localhost:3000',
    secureCookies: false,
    baseUrl: 'https://api.example.com:8443/v1',
    oauth: {
      ...DEFAULTS.oauth,
      authorizeUrl: 'https://auth.example.com/a/?b',
      authorizeParameters: [
        { name: 'prompt', value: 'consent' },
        { name: 'nonce', value: null },
      ],
      tokenUrl: 'https://auth.example.com/t/',
      clientAuth: 'basic',
      revocationUrl: 'https://auth.example.com/r/',
      endSessionUrl: 'https://auth.example.com/e?a=b',
      clientId: 'client-2',
      clientSecret: 'another-secret-value',
      issuer: 'https://auth.example.com/',
      scope: 'one two',
      flows: ['code', 'client'],
      redirect: 'fixed',
      pkce: false,
      refusedGrants: [
        { status: 400, code: null },
        { status: 401, code: 'a_b' },
      ],
      tokenTimeoutMs: 500,
    },
    egress: {
      https: { tls: true, host: 'proxy', port: 443, authorization: 'Basic bWU6d29yZA==' },
      http: { tls: false, host: 'proxy', port: 3128, authorization: null },
      exempt: ['a', 'b'],
    },
    clientFluxAllowed: ['DEMO/flux-1', 'DEMO/a.b~c'],
    sessionSecrets: [SESSION_SECRET, OTHER_SECRET],
    store: {
      kind: 'redis',
      target: { ...DEFAULTS.store.target, db: 3, tls: true },
      ca: CERTIFICATE,
      clientCertificate: {
        certificate: readFileSync(own.certFile, 'utf8'),
        key: readFileSync(own.keyFile, 'utf8'),
      },
      prefix: 'one:',
    },
    wac: { default: 'DEMO', allowed: ['DEMO', 'ACME'] },
    listen: { host: '::1', port: 0, opsPort: 0 },
    session: { idleSeconds: 100, maxSeconds: 100, cacheMs: 250, isBound: false },
    refresh: { aheadSeconds: 20, thresholdSeconds: 20, concurrency: 8, reuseSeconds: 60 },
    upstream: {
      tokenIn: 'query',
      timeoutMs: 1000,
      bodyLimitBytes: 1024,
      headers: [{ name: 'X-Api-Version', value: '2' }],
      tokenShapes: [{ status: 403, path: null }],
      via: false,
    },
    storeWaitMs: 1500,
    keepAliveSeconds: 600,
    loginRatePerMinute: 0,
    trustProxy: ['10.0.0.0/8', '192.0.2.7', '2001:db8::/32'],
    static: {
      dir: `${dir}/site`,
      csp: { 'img-src': ['https://tiles.example'], 'form-action': ['https://auth.example.com'] },
      referrerPolicy: 'strict-origin',
      permissionsPolicy: 'geolocation=(self)',
    },
    accessLog: 'off',
    logLevel: 'silent',
    shutdownSeconds: 5,
    shutdownDelaySeconds: 7,
    tracing: {
      url: 'http://collector:4318/v1/traces',
      protocol: 'http/json',
      headers: 'x-api-key=a%20b=c, other=',
      ca: CERTIFICATE,
      clientCertificate: readFileSync(own.certFile, 'utf8'),
      clientKey: readFileSync(own.keyFile, 'utf8'),
    },
  })
})

t.test('a base URL loses one trailing slash only, and the scope defaults to it', async (t) => {
  const config = configOf({ BASE_URL: 'https://api.example.com/v1//' })
  t.equal(config.baseUrl, 'https://api.example.com/v1/')
  t.equal(config.oauth.scope, 'https://api.example.com/v1/')
})

t.test('the addresses of OAuth endpoints are kept to the letter', async (t) => {
  for (const url of ['https://a.example', 'https://a.example/token/', 'https://A.example:443/x//%7e/../']) {
    const all = { OAUTH_AUTHORIZE_URL: url, OAUTH_TOKEN_URL: url, OAUTH_REVOCATION_URL: url }
    const { oauth } = configOf({ ...all, OAUTH_END_SESSION_URL: url })
    t.strictSame(
      [oauth.authorizeUrl, oauth.tokenUrl, oauth.revocationUrl, oauth.endSessionUrl],
      Array(4).fill(url),
    )
  }
})

t.test('plain http is accepted on loopback, elsewhere only if allowed and with a warning', async (t) => {
  for (const host of ['localhost', 'app.localhost', '127.0.0.1', '127.1.2.3', '[::1]']) {
    t.strictSame(faultsOf({ BASE_URL: `http://${host}:4000` }), [], host)
    t.strictSame(warningsOf({ BASE_URL: `http://${host}:4000` }), [], host)
  }
  const names = ['AUTH_URL', 'BASE_URL', 'PUBLIC_URL']
  const insecure = Object.fromEntries(names.map((name) => [name, 'http://other.test']))
  t.equal(faultsOf({ ...insecure, ALLOW_INSECURE_HTTP: 'false' }).length, 3)
  t.equal(configOf({ ...insecure, ALLOW_INSECURE_HTTP: 'true' }).secureCookies, false)
  const warnings = warningsOf({ ...insecure, ALLOW_INSECURE_HTTP: 'true' })
  t.strictSame(warnings.map((warning) => warning.split(' ')[0]).sort(), names)
})

t.test('SHUTDOWN_SECONDS below UPSTREAM_TIMEOUT_MS is warned of where one of the two is set', async (t) => {
  t.strictSame(warningsOf({}), [], 'not the defaults')
  for (const env of [
    { SHUTDOWN_SECONDS: '29' },
    { UPSTREAM_TIMEOUT_MS: '20001' },
    { SHUTDOWN_SECONDS: '40', UPSTREAM_TIMEOUT_MS: '41000' },
  ])
    t.match(
      warningsOf(env),
      [/^SHUTDOWN_SECONDS \(\d+ s\) is below UPSTREAM_TIMEOUT_MS/],
      JSON.stringify(env),
    )
  for (const env of [{ SHUTDOWN_SECONDS: '30' }, { UPSTREAM_TIMEOUT_MS: '20000' }])
    t.strictSame(warningsOf(env), [], JSON.stringify(env))
})

t.test('a name that looks like a misspelling causes a warning, and other names do not', async (t) => {
  for (const [given, meant] of [
    ['SESION_IDLE_SECONDS', 'SESSION_IDLE_SECONDS'],
    ['LOGLEVEL', 'LOG_LEVEL'],
    ['upstream_timeout_ms', 'UPSTREAM_TIMEOUT_MS'],
    ['TRUSTED_PROXY', 'TRUST_PROXY'],
    ['SESSION_IDLE', 'SESSION_IDLE_SECONDS'],
  ] as const) {
    t.strictSame(warningsOf({ [given]: '1' }), [
      `${given} is not a variable of this server: did you mean ${meant}?`,
    ])
  }
  t.strictSame(warningsOf({ LOGLEVEL: 'warn', LOG_LEVEL: 'info' }), [], 'the right one is set as well')
  for (const name of ['PATH', 'HOSTNAME', 'APP_PORT', 'REDIS_PORT', 'REDIS_SERVICE_HOST', 'NODE_ENV']) {
    t.strictSame(warningsOf({ [name]: 'x' }), [], name)
  }
  for (const name of ['FTP_PROXY', 'ftp_proxy', 'ALL_PROXY', 'all_proxy']) {
    t.strictSame(warningsOf({ [name]: 'http://proxy' }), [], `${name} is for other programs`)
  }
  t.match(warningsOf({ HTTP_PROXI: 'http://proxy' }), [/did you mean HTTP_PROXY\?$/])
})

t.test('a file for a variable that is no secret causes a warning: it would be ignored', async (t) => {
  const folder = t.testdir({ value: 'DEMO', headers: '{}' })
  const file = `${folder}/value`
  for (const name of ['WAC_ALLOWED', 'TRUST_PROXY', 'OPERATIONS_FILE', 'LOG_LEVEL']) {
    t.strictSame(warningsOf({ [`${name}_FILE`]: file }), [
      `${name}_FILE is not read, since only secrets may be in files: set ${name}`,
    ])
  }
  t.strictSame(warningsOf({ WAC_ALLOWED_FILE: file, WAC_ALLOWED: 'DEMO' }), [], 'it is set as well')
  t.strictSame(warningsOf({ UPSTREAM_HEADERS_FILE: `${folder}/headers` }), [], 'a secret may be in a file')
})

t.test('a quoted secret and one with blanks at its edges cause a warning without the value', async (t) => {
  const file = t.testdir({ secret: ' of-a-file\n' })
  const quote = 'begins and ends with a quote (some env files keep quotes)'
  const blank = 'begins or ends with a blank'
  for (const [name, value, says] of [
    ['CLIENT_SECRET', '"quoted-value"', quote],
    ['CLIENT_SECRET', "'quoted-value'", quote],
    ['CLIENT_SECRET', 'blank-value ', blank],
    ['SESSION_SECRET', `"${SESSION_SECRET}"`, quote],
    ['SESSION_SECRET', ` ${SESSION_SECRET}`, blank],
  ] as const) {
    const warnings = warningsOf({ [name]: value })
    t.equal(warnings.length, 1)
    t.ok(warnings[0]?.startsWith(`${name} ${says}`), name)
    t.notMatch(warnings[0], /quoted-value|blank-value|0123456789/)
  }
  t.match(warningsOf({ CLIENT_SECRET: undefined, CLIENT_SECRET_FILE: `${file}/secret` }), [
    /^CLIENT_SECRET begins or/,
  ])
  t.strictSame(warningsOf({ CLIENT_SECRET: 'it"s fine' }), [])
})

t.test('discouraged flows, the memory store and settings without effect cause a warning', async (t) => {
  const flows = warningsOf({ OAUTH_FLOWS: 'code,token,password,client', CLIENT_FLUX_ALLOWED: '*' })
  t.equal(flows.length, 3)
  for (const [index, flow] of ['token', 'password', 'client'].entries()) {
    t.match(flows[index], new RegExp(`^OAUTH_FLOWS .*\\b${flow}\\b.*RFC 9700`))
  }
  const memory = { SESSION_STORE: 'memory', REDIS_URL: undefined }
  t.match(warningsOf(memory), [/^SESSION_STORE=memory.*lost/])
  t.strictSame(configOf(memory).store, { kind: 'memory' })
  t.equal(configOf({ OAUTH_FLOWS: 'client', CLIENT_FLUX_ALLOWED: '*' }).clientFluxAllowed, '*')
  t.match(warningsOf({ CLIENT_FLUX_ALLOWED: '*' }), [/^CLIENT_FLUX_ALLOWED has no effect/])
  t.equal(configOf({ CLIENT_FLUX_ALLOWED: '*' }).clientFluxAllowed, null)
  t.match(warningsOf({ REDIS_SENTINEL_PASSWORD: 'pass' }), [/^REDIS_SENTINEL_PASSWORD has no effect/])
  const dir = t.testdir({ 'ca.pem': CERTIFICATE })
  const own = await createCertificate(makeFolder('certificate'))
  const other = await createCertificate(makeFolder('certificate'))
  t.match(warningsOf({ REDIS_CA_FILE: `${dir}/ca.pem` }), [/^REDIS_CA_FILE has no effect/])
  const client = { REDIS_CERT_FILE: own.certFile, REDIS_KEY_FILE: own.keyFile }
  t.match(warningsOf(client), [/^REDIS_CERT_FILE has no effect/])
  t.match(faultsOf({ REDIS_CERT_FILE: own.certFile }), [/^REDIS_KEY_FILE is required with REDIS_CERT_FILE$/])
  t.match(faultsOf({ REDIS_KEY_FILE: own.keyFile }), [/^REDIS_CERT_FILE is required with REDIS_KEY_FILE$/])
  t.match(faultsOf({ ...client, REDIS_KEY_FILE: other.keyFile }), [/^REDIS_KEY_FILE is not the key/])
  const tracing = {
    OTEL_EXPORTER_OTLP_ENDPOINT: 'https://collector',
    OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: own.certFile,
  }
  t.match(faultsOf(tracing), [/^OTEL_EXPORTER_OTLP_CLIENT_KEY is required with OTEL_.*_CERTIFICATE$/])
  t.match(faultsOf({ ...tracing, OTEL_EXPORTER_OTLP_CLIENT_KEY: other.keyFile }), [
    /^OTEL_EXPORTER_OTLP_CLIENT_KEY is not the key .* OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE$/,
  ])
})

t.test('a variable that no longer exists causes one warning, which says what to do instead', async (t) => {
  const gone = {
    WORKERS: 'a process is a replica: run more replicas behind the reverse proxy (docs/deployment.md)',
    STORE_OUTAGE_GRACE_SECONDS:
      'a sign-out during an outage would not be seen: no session is served while Redis is away, so run Redis with Sentinel or as a Cluster (docs/deployment.md)',
  }
  for (const [name, says] of Object.entries(gone))
    for (const value of ['0', '60', 'anything'])
      t.strictSame(warningsOf({ [name]: value }), [`${name} is gone, because ${says}`])
  t.strictSame(warningsOf({ WORKERS: '', STORE_OUTAGE_GRACE_SECONDS: '' }), [])
})

t.test('traces go to the endpoint of traces, else below the general one, unless turned off', async (t) => {
  const general = { OTEL_EXPORTER_OTLP_ENDPOINT: 'https://collector/otlp' }
  const whole = { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://other:4318/own' }
  t.equal(configOf(general).tracing?.url, 'https://collector/otlp/v1/traces')
  t.equal(configOf({ ...general, ...whole }).tracing?.url, 'http://other:4318/own')
  t.equal(configOf({ ...general, OTEL_TRACES_EXPORTER: 'none' }).tracing, null)
  t.equal(configOf({ ...whole, OTEL_SDK_DISABLED: 'True' }).tracing, null)
})

t.test('without an endpoint of traces the variables of OpenTelemetry are not read', async (t) => {
  const env = {
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    OTEL_EXPORTER_OTLP_CERTIFICATE: '/nowhere',
    OTEL_EXPORTER_OTLP_HEADERS: '"quoted"',
    OTEL_TRACES_EXPORTER: 'console',
    OTEL_SDK_DISABLED: '1',
  }
  t.strictSame(warningsOf(env), [])
  t.equal(configOf({ ...env, OTEL_EXPORTER_OTLP_ENDPOINT: '' }).tracing, null)
})
