import fc from 'fast-check'
import t from 'tap'
import type { JournalEntry } from '../../src/sandbox/journal.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import type { Question } from '../http/wire.ts'
import { portOf, speak } from '../http/wire.ts'

const RUNS = 400
/** Found nowhere but in what the browser sends. */
const CANARY = 'c4n4ry'

const ODD = [
  '..',
  '.',
  '%2e',
  '%2f',
  '%5c',
  '%00',
  '%0d%0a',
  '//',
  '/',
  '\\',
  ';',
  '?',
  '&',
  '=',
  '+',
  '%25',
  '%',
  '#',
  '@',
  ':',
  'é',
  ' ',
  '"',
  '<',
  '{',
]
const WORDS = [
  'flux',
  'site',
  'DEMO',
  'ACME',
  'a',
  '42',
  'json',
  'reply',
  'UpdateSite',
  'Infrastructure',
  'Site',
  'oauth',
  'token',
  '.json',
  CANARY,
]
const NAMES = [
  'access_token',
  'oauth_token',
  'callback',
  'format',
  'Access_Token',
  'access%5ftoken',
  'x',
  'jsconfig',
  'wac',
  'siteID',
  CANARY,
]
const FIELDS = [
  'Authorization',
  'Cookie',
  'X-Forwarded-For',
  'X-Forwarded-Host',
  'Forwarded',
  'X-HTTP-Method-Override',
  'X-Method-Override',
  'X-Original-URL',
  'X-Rewrite-URL',
  'Proxy-Authorization',
  'Connection',
  'TE',
  'Trailer',
  'Upgrade',
  'Keep-Alive',
  'Referer',
  'User-Agent',
  'X-CSRF',
  'X-Access-Token',
  'Accept-Charset',
  'Range',
  'If-None-Match',
  'Accept-Language',
  'Accept-Encoding',
  'Accept',
  'Via',
  'traceparent',
  'Content-Language',
  'From',
  'Max-Forwards',
  'DNT',
  'Sec-Fetch-User',
  'Host',
]

/** What may stand in a request to the resource server. Those of the browser's own are the last. */
const ALLOWED = new Set([
  'host',
  'connection',
  'content-length',
  'authorization',
  'accept',
  'content-type',
  'via',
  'accept-encoding',
  'accept-language',
  'if-match',
  'if-none-match',
  'if-modified-since',
  'if-unmodified-since',
  'if-range',
  'range',
  'traceparent',
])
const OURS = new Set(['host', 'connection', 'content-length', 'authorization', 'accept', 'content-type'])

const visible = fc.stringMatching(/^[\x21-\x7e]{0,12}$/)
const piece = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...WORDS) },
  { weight: 3, arbitrary: fc.constantFrom(...ODD) },
  { weight: 1, arbitrary: visible },
)
const segment = fc.array(piece, { maxLength: 4 }).map((pieces) => pieces.join(''))
const goodSegment = fc.oneof(
  { weight: 2, arbitrary: fc.constantFrom('a', 'DEMO', '42') },
  { weight: 1, arbitrary: segment },
)
const parameter = fc
  .tuple(fc.oneof(fc.constantFrom(...NAMES), visible), fc.oneof(fc.constant(CANARY), visible, segment))
  .map(([name, value]) => `${name}=${value}`)
const ROUTES = [
  ['GET', '/flux/a'],
  ['HEAD', '/flux/a'],
  ['GET', '/flux/ACME/a.b~c'],
  ['PUT', '/site/42'],
  ['PUT', '/site/ACME/42.json'],
  ['POST', '/site'],
] as const
const start = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...ROUTES) },
  {
    weight: 2,
    arbitrary: fc.tuple(
      fc.constantFrom('GET', 'HEAD', 'PUT', 'POST'),
      fc
        .tuple(
          fc.constantFrom('/flux', '/flux', '/site', '/Flux', '//flux', '/x/../flux'),
          fc.array(goodSegment, { minLength: 1, maxLength: 3 }),
        )
        .map(([first, segments]) => [first, ...segments].join('/')),
    ),
  },
)
const query = fc.oneof(
  fc.constant([]),
  fc.array(
    fc.oneof(
      { weight: 3, arbitrary: fc.constantFrom('x=1', 'format=json', `note=${CANARY}`) },
      { weight: 1, arbitrary: parameter },
    ),
    { maxLength: 3 },
  ),
)
const value = fc.oneof(
  fc.constant(`Bearer ${CANARY}`),
  fc.constant(`${CANARY}, authorization, via, close`),
  fc.constant('application/json'),
  fc.stringMatching(/^[\x21-\x7e]([\x20-\x7e]{0,20}[\x21-\x7e])?$/),
)
const question: fc.Arbitrary<Question> = fc
  .tuple(
    start,
    query,
    fc.array(fc.tuple(fc.constantFrom(...FIELDS), value), { maxLength: 6 }),
    fc.constantFrom('{}', '{"siteID":42}', '{"name":"n","siteID":42}', `{"${CANARY}":1}`, '['),
  )
  .map(([[method, path], parameters, headers, body]) => ({
    method,
    target: path + (parameters.length > 0 ? `?${parameters.join('&')}` : ''),
    headers,
    body,
  }))

function check(entry: JournalEntry, tokens: ReadonlySet<string>): void {
  const path =
    /^\/(?:[A-Za-z0-9_-]{1,64}\/flux\/(?!\.{1,2}\?)[A-Za-z0-9_.~-]{1,128}|[A-Za-z0-9_-]{1,64}\/Infrastructure\/Site\/\d{1,16}|json\/reply\/UpdateSite)(\?[\x21-\x7e]*)?$/
  if (!path.test(entry.url) || entry.url.includes('#'))
    throw new Error(`a path of the browser's own: ${entry.url}`)
  const names: string[] = []
  for (let at = 0; at < entry.rawHeaders.length; at += 2) {
    const name = entry.rawHeaders[at]!.toLowerCase()
    const text = entry.rawHeaders[at + 1]!
    if (!ALLOWED.has(name)) throw new Error(`a header that is not allowed: ${name}`)
    if (names.includes(name)) throw new Error(`twice: ${name}`)
    names.push(name)
    if (OURS.has(name) && text.includes(CANARY)) throw new Error(`of the browser's: ${name}: ${text}`)
    if (name === 'authorization' && !tokens.has(text)) throw new Error(`not our token: ${text}`)
  }
  if (!names.includes('authorization')) throw new Error('no token')
  const query = new URLSearchParams(entry.url.split('?').slice(1).join('?'))
  for (const name of query.keys()) {
    if (/^(access_token|oauth_token)$/i.test(name)) throw new Error(`a token of the browser's: ${entry.url}`)
    if (/^callback$/i.test(name) && entry.kind === 'GetFlux') throw new Error(`a script: ${entry.url}`)
  }
  if (entry.kind === 'GetFlux' && query.getAll('format').length !== 1) throw new Error(`format: ${entry.url}`)
  if (entry.body?.includes(CANARY)) throw new Error(`an unknown member: ${entry.body}`)
}

t.test(
  'whatever a browser sends, what goes out is a documented call with our one token',
  { timeout: 40_000 },
  async (t) => {
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox, { ACCESS_LOG: 'off', LOG_LEVEL: 'silent' })
    const browser = bff.browser()
    await signIn(browser, sandbox)
    await browser.fetch('/flux/a')
    const tokens = new Set(
      sandbox.journal.entries({ endpoint: 'resource' }).map(({ headers }) => headers.authorization!),
    )
    t.equal(tokens.size, 1)
    const session = browser.cookies.get('session')!.value
    let reached = 0
    await fc.assert(
      fc.asyncProperty(question, async ({ method, target: path, headers = [], body }) => {
        sandbox.journal.clear()
        const sendsBody = method === 'PUT' || method === 'POST'
        const lines = [
          `${method} ${path} HTTP/1.1`,
          'Host: bff.test',
          'Sec-Fetch-Site: same-origin',
          `Cookie: session=${session}`,
          'Connection: close',
          ...(sendsBody ? ['Content-Type: application/json', `Content-Length: ${body!.length}`] : []),
          ...headers.map(([name, text]) => `${name}: ${text}`),
        ]
        const heard = await speak(portOf(bff), `${lines.join('\r\n')}\r\n\r\n${sendsBody ? body : ''}`, 5_000)
        // What the parser refuses has a body even for HEAD: nobody knows its method.
        if (heard.answers.length !== 1 || (heard.rest !== '' && method !== 'HEAD'))
          throw new Error(`answers: ${JSON.stringify(heard)}`)
        const [{ status, headers: fields }] = heard.answers as [(typeof heard.answers)[0]]
        if (status >= 300 && status < 400 && status !== 304) throw new Error(`a redirect: ${status}`)
        if (fields.has('set-cookie')) throw new Error('a cookie')
        const entries = sandbox.journal.entries()
        if (entries.length > 1) throw new Error(`${entries.length} calls went out`)
        for (const entry of entries) {
          if (entry.endpoint !== 'resource') throw new Error(`it reached ${entry.endpoint}`)
          check(entry, tokens)
        }
        reached += entries.length
      }),
      { numRuns: RUNS },
    )
    t.ok(reached > RUNS / 10, `${reached} of ${RUNS} requests went out`)
  },
)
