// What can somebody without a session make this server do?
import { writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { startOurs } from '../candidates.mjs'
import { compare, total } from '../compare.mjs'
import { cpuOf } from '../machine.mjs'
import { markdownTable, range } from '../page.mjs'

/** With https, as in production: sessions are bound there alone. The requests come without TLS, as from a reverse proxy. */
const PUBLIC_URL = 'https://bench.example'
const OWN = { host: 'bench.example', 'x-csrf': '1' }
const JSON_TYPE = { ...OWN, 'content-type': 'application/json' }
/** Node takes a head of 16 KB, and this server a target of 8. */
const HEAD_BYTES = 14_000
const TARGET_BYTES = 7_900
const BODY_BYTES = 64_000

const fill = (part, bytes) => part.repeat(Math.floor(bytes / part.length))
const list = (part, bytes) => fill(`${part},`, bytes).slice(0, -1)

const NOTHING = { name: '404', title: 'a 404', path: '/nothing' }
const WITH_LONG_HEAD = {
  name: '404-long',
  title: 'a 404 with a head of 14 KB',
  path: '/nothing',
  headers: { 'x-long': fill('a', HEAD_BYTES) },
}

const members = (_, at) => `"m${at}":1`
const put = (name, title, body) => ({ name, title, method: 'PUT', path: '/site/1', headers: JSON_TYPE, body })
const post = (name, title, body) => ({
  ...put(name, title, body),
  method: 'POST',
  path: '/data/DEMO/Any/thing',
})
const flux = (name, title, query, headers = {}) => ({ name, title, path: `/flux/x${query}`, headers })

function device(name, title, path, response) {
  return { name, title, method: 'POST', path, headers: { 'secure-session-response': response } }
}

/** A registration as a browser sends it, for a challenge that this server did not issue. */
function registration() {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const jwk = { kty: 'EC', crv: 'P-256', x: fill('x', 43), y: fill('y', 43) }
  const challenge = `${fill('a', 8)}.${fill('b', 170)}`
  return [part({ alg: 'ES256', typ: 'dbsc+jwt', jwk }), part({ jti: challenge }), fill('s', 86)].join('.')
}

/** At most twice a 404, or three times where the route asks the store. */
const SHORT = [
  { name: 'session', title: '`GET /auth/session`', path: '/auth/session', goal: 3 },
  { name: 'login', title: '`GET /auth/login`', path: '/auth/login' },
  { name: 'callback', title: '`GET /auth/callback/…`', path: `/auth/callback/${fill('A', 43)}?code=x` },
  { name: 'client', title: '`GET /auth/client.js`', path: '/auth/client.js' },
  flux('flux', '`GET /flux/x`', ''),
  put('put', '`PUT /site/1`', '{"name":"x"}'),
  put('members', '`PUT /site/1`, 64 KB of members', `{${Array.from({ length: 6_000 }, members).join()}}`),
  post('numbers', 'a declared POST, 64 KB of numbers', `{"a":[${list('1', BODY_BYTES)}]}`),
  post('text', 'a declared POST, 64 KB of text', JSON.stringify({ a: fill('x', BODY_BYTES) })),
  post('deep', 'a declared POST, 64 KB of brackets', fill('[', BODY_BYTES)),
  {
    ...put('logout', '`POST /auth/logout`, 64 KB', fill('x', BODY_BYTES)),
    method: 'POST',
    path: '/auth/logout',
    goal: 3,
  },
  { ...put('unknown', 'a PUT of an unknown path, 64 KB', fill('x', BODY_BYTES)), path: '/nothing' },
  device('device', '`POST /auth/device`, a key of nobody', '/auth/device', registration()),
  device('refresh', '`POST /auth/device/refresh`', '/auth/device/refresh', registration()),
]

/** At most four times a 404 with as long a head. */
const LONG = [
  flux('parameters', '`GET /flux/x?a&a&…`, 8 KB', `?${fill('a&', TARGET_BYTES)}`),
  flux(
    'hundred',
    '`GET /flux/x?`, 100 parameters of 8 KB',
    `?${fill(`a=${fill('%41', 25)}&`, TARGET_BYTES)}`,
  ),
  flux('one', '`GET /flux/x?a=…`, 8 KB', `?a=${fill('b', TARGET_BYTES)}`),
  flux('commas', '`Accept: ,,,…`', '', { accept: fill(',', HEAD_BYTES) }),
  flux('ranges', '`Accept` of 1,270 types', '', { accept: list('a/b;q=0.1', HEAD_BYTES) }),
  flux('weights', '`Accept: a/b;;;…`', '', { accept: `a/b${fill(';', HEAD_BYTES)}` }),
  flux('codings', '`Accept-Encoding`, 14 KB', '', { 'accept-encoding': list('gzip;q=0.1', HEAD_BYTES) }),
  {
    name: 'file',
    title: 'a file, `Accept-Encoding` of 14 KB',
    path: '/small.js',
    headers: { 'accept-encoding': list('br;q=0.1', HEAD_BYTES) },
  },
  {
    name: 'range',
    title: 'a file, `Range` of 14 KB',
    path: '/small.js',
    headers: { range: `bytes=${list('0-1', HEAD_BYTES)}` },
  },
  {
    name: 'match',
    title: 'a file, `If-None-Match` of 14 KB',
    path: '/small.js',
    headers: { 'if-none-match': list('"a"', HEAD_BYTES) },
  },
  {
    name: 'cookies',
    title: '`GET /auth/login`, 600 login cookies',
    path: '/auth/login',
    headers: { cookie: fill('__Host-Http-login-a=b;', HEAD_BYTES) },
  },
  {
    name: 'blanks',
    title: '`GET /auth/session`, `Cookie` of blanks',
    path: '/auth/session',
    headers: { cookie: `x${fill(' ', HEAD_BYTES)}__Host-Http-session=y` },
  },
  {
    name: 'sessions',
    title: '`GET /auth/session`, 600 session cookies',
    path: '/auth/session',
    headers: { cookie: fill('__Host-Http-session=b;', HEAD_BYTES) },
  },
  device('response', '`POST /auth/device`, 14 KB of dots', '/auth/device', fill('.', HEAD_BYTES)),
  {
    name: 'undecodable',
    title: '`GET /auth/session`, 1,700 cookies that cannot be decoded',
    path: '/auth/session',
    headers: { cookie: fill('ab=%E9; ', HEAD_BYTES) },
  },
  {
    name: 'answers',
    title: '`GET /auth/callback/…`, 2,000 parameters',
    path: `/auth/callback/${fill('A', 43)}?${Array.from({ length: 2_000 }, (_, at) => at.toString(36)).join('&')}`,
  },
  {
    name: 'host',
    title: '`GET /auth/login`, `Host` of 14 KB',
    path: '/auth/login',
    headers: { host: fill('\u00e9.', HEAD_BYTES) },
  },
  {
    name: 'referrer',
    title: '`GET /flux/x`, `Referer` of 14 KB',
    path: '/flux/x',
    headers: { 'x-csrf': '0', referer: `http://${fill('\u00e9.', HEAD_BYTES)}` },
  },
  { name: 'escapes', title: 'a 404, a path of 8 KB of escapes', path: `/${fill('%25', TARGET_BYTES)}` },
  {
    name: 'forwarded',
    title: '`X-Forwarded-For`, 14 KB',
    path: '/auth/session',
    headers: { 'x-forwarded-for': list('10.0.0.1', HEAD_BYTES) },
  },
  {
    name: 'type',
    title: '`Content-Type`, 14 KB',
    method: 'PUT',
    path: '/site/1',
    headers: { 'content-type': fill(' ', HEAD_BYTES) },
    body: '{}',
  },
].map((kind) => ({ ...kind, beside: WITH_LONG_HEAD, goal: 4 }))

const KINDS = [...SHORT, ...LONG].map((kind) => ({ beside: NOTHING, goal: 2, ...kind }))

export const anonymous = {
  candidates: KINDS,
  reference: NOTHING,
  usual: { rounds: 5, seconds: 1, warmup: 2, count: 500 },
  quick: { rounds: 1, seconds: 0.2, warmup: 0.2, count: 20 },

  /** `count`: requests of a kind in each second of `seconds` and `warmup`, one after another. */
  async measure(services, { candidates, count, ...options }) {
    const env = environmentOf(services.processes.folder)
    const server = await startOurs(services, { env })
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const load = (kind) => async (seconds) => {
      const before = cpuOf(server.pid)
      const requests = Math.ceil(count * seconds)
      for (let each = 0; each < requests; each += 1) await ask(agent, server.url, kind)
      return { requests, cpu: cpuOf(server.pid) - before }
    }
    const rows = []
    for (const beside of [NOTHING, WITH_LONG_HEAD]) {
      const own = candidates.filter((kind) => kind.beside === beside)
      if (own.length === 0) continue
      const compared = await compare({
        candidates: [beside, ...own],
        reference: beside,
        options: { turnSeconds: options.seconds / 4, ...options },
        start: async (kind) => ({ warmUp: load(kind), load: load(kind), async stop() {} }),
        figuresOf: (loads) => ({ cpu: total(loads, 'cpu') / total(loads, 'requests') }),
        judgedBy: [],
      })
      rows.push(...compared.rows)
    }
    agent.destroy()
    await server.stop()
    return { table: tableOf(rows), noise: null }
  },
}

function environmentOf(folder) {
  const operations = join(folder, 'operations.json')
  const declared = { AnyThing: { method: 'POST', path: '/{wac}/Any/thing', body: 'any' } }
  writeFileSync(operations, JSON.stringify({ operations: declared }))
  writeFileSync(join(folder, 'index.html'), '<!doctype html><title>page</title>')
  writeFileSync(join(folder, 'small.js'), fill('//\n', 1_000))
  return { PUBLIC_URL, ACCESS_LOG: 'off', OPERATIONS_FILE: operations, STATIC_DIR: folder, WAC: 'DEMO' }
}

function ask(agent, url, { method = 'GET', path, headers = {}, body }) {
  return new Promise((resolve, reject) => {
    const fields = body === undefined ? headers : { ...headers, 'content-length': Buffer.byteLength(body) }
    const sent = request(url + path, { agent, method, headers: { ...OWN, ...fields } }, (response) =>
      response.resume().once('close', resolve),
    )
    sent.once('error', reject).end(body)
  })
}

function tableOf(rows) {
  return markdownTable(
    [
      ['', ({ title }) => title],
      ['CPU µs/request', ({ figures }) => range(figures.cpu, 0)],
      ['× a 404', ({ times }) => times.cpu.middle.toFixed(2)],
      ['goal', ({ goal }) => goal?.toFixed(1) ?? ''],
    ],
    rows,
  )
}
