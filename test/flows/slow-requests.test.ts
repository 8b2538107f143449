import { writeFileSync } from 'node:fs'
import { request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { startBff, startSandbox } from '../helpers/system.ts'
import { makeFolder } from '../helpers/watchdog.ts'

/** Of a header field: with the rest of the request, just below what Node's parser takes. */
const FIELD_LENGTH = 14_500
/** Of a query: with the path, below what this server takes. */
const QUERY_LENGTH = 7_900
/** How many times the work of a plain request of the same size is too much. A quadratic pattern takes 100 times. */
const FACTOR = 25
/** Collections of garbage come and go: a request that is slow each time is slow. */
const TRIES = 6

const fill = (piece: string) => (length: number) =>
  piece.repeat(Math.ceil(length / piece.length)).slice(0, length)
const between = (start: string, piece: string, end: string) => (length: number) =>
  start + fill(piece)(length - start.length - end.length) + end

const PATTERNS: Record<string, (length: number) => string> = {
  'blanks in a name': between('x', ' ', 'y=1'),
  'tabs in a name': between('x', '\t', 'y=1'),
  'blanks in a media type': between('application/json', ' ', 'x'),
  'blanks in a login cookie': between('login-', ' ', '=1'),
  'many login cookies': fill('login-a=b;'),
  'many session cookies': fill('  session='),
  letters: fill('a'),
  digits: fill('1'),
  commas: fill(', '),
  semicolons: fill('; '),
  equals: fill('='),
  quotes: between('a="', '\\"', ''),
  percents: fill('%'),
  encoded: fill('%41'),
  dots: fill('.'),
  slashes: fill('/'),
  addresses: fill('1.2.3.4, '),
  brackets: fill('[::1]:'),
  weights: fill('a/b;q=0.1,'),
}

const HEADERS = [
  ...['cookie', 'accept', 'accept-encoding', 'accept-language', 'content-type', 'origin', 'referer', 'host'],
  ...['x-forwarded-for', 'x-forwarded-host', 'forwarded', 'traceparent', 'range', 'if-none-match', 'via'],
  ...['sec-fetch-site', 'sec-fetch-mode', 'x-request-id', 'expect', 'authorization', 'if-modified-since'],
]

/** One for each reading of headers: other routes read theirs by the same code. */
const ROUTES = ['GET /auth/login?returnTo=%2F', 'PUT /site/1', 'GET /']

const QUERIES = [
  ...['GET /auth/login?returnTo=', 'GET /auth/login?', `GET /auth/callback/${'A'.repeat(43)}?code=`],
  ...['GET /flux/pub?', 'GET /flux/', 'PUT /site/1?callback=', 'GET /assets/', 'GET /auth/callback/'],
]

t.test('no header field and no query makes a request much more work than plain text does', async (t) => {
  const page = makeFolder('page')
  writeFileSync(join(page, 'index.html'), 'page')
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, {
    OAUTH_FLOWS: 'code,token,password,client',
    CLIENT_FLUX_ALLOWED: 'DEMO/pub',
    TRUST_PROXY: '127.0.0.1',
    LOGIN_RATE_PER_MINUTE: '0',
    STATIC_DIR: page,
    LOG_LEVEL: 'silent',
  })
  const { port } = bff.app.server.server.address() as AddressInfo

  /** Microseconds of CPU that the process spends on a request, this client included. */
  function work(methodAndPath: string, headers: Record<string, string>): Promise<number> {
    const [method, path] = methodAndPath.split(' ') as [string, string]
    const before = process.cpuUsage()
    return new Promise((resolve, reject) => {
      const done = () => {
        const { user, system } = process.cpuUsage(before)
        resolve(user + system)
      }
      const asked = request({ host: '127.0.0.1', port, method, path, agent: false, headers }, (response) => {
        const { statusCode = 0 } = response
        if (statusCode === 414 || statusCode === 431) reject(new Error(`${statusCode}: it was not read`))
        response.resume().on('close', done)
      })
      asked.on('error', reject).end()
    })
  }
  const own = { host: `localhost:${port}`, 'x-csrf': '1' }
  async function least(times: number, measure: () => Promise<number>, enough = 0): Promise<number> {
    let found = Number.POSITIVE_INFINITY
    for (let time = 0; time < times && found > enough; time += 1) found = Math.min(found, await measure())
    return found
  }

  let requests = 0
  const slow: string[] = []
  async function compare(what: string, plain: number, measure: () => Promise<number>): Promise<void> {
    requests += 1
    const found = await least(TRIES, measure, FACTOR * plain)
    if (found > FACTOR * plain) slow.push(`${what}: ${Math.round(found / plain)} times`)
  }

  for (const route of ROUTES) {
    const plain = await least(10, () => work(route, { ...own, 'x-plain': fill('a')(FIELD_LENGTH) }))
    for (const header of HEADERS)
      for (const [what, pattern] of Object.entries(PATTERNS))
        await compare(`${route}, ${header}, ${what}`, plain, () =>
          work(route, { ...own, [header]: pattern(FIELD_LENGTH) }),
        )
  }
  for (const query of QUERIES) {
    const plain = await least(10, () => work(query + fill('a')(QUERY_LENGTH), own))
    for (const [what, pattern] of Object.entries(PATTERNS)) {
      const path = query + pattern(QUERY_LENGTH).replace(/[^\x21-\x7e]/g, '+')
      await compare(`${query}, ${what}`, plain, () => work(path, own))
    }
  }
  t.strictSame(slow, [])
  t.equal(requests, (ROUTES.length * HEADERS.length + QUERIES.length) * Object.keys(PATTERNS).length)
})
