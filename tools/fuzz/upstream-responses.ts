import net, { type Socket } from 'node:net'
import fc from 'fast-check'
import type { Teardown } from '../../test/helpers/child.ts'
import { requireDocumented } from '../../test/helpers/documented.ts'
import { listenOnLoopback } from '../../test/helpers/ports.ts'
import { signIn, startBff, startSandbox } from '../../test/helpers/system.ts'
import { elapsed, PATIENCE_MS } from '../../test/helpers/wait.ts'
import { portOf } from '../../test/http/wire.ts'
import { choose, createFuzzer, mix, QUIET, words } from './fuzzer.ts'

const CANARY = 'c4n4ry'

/** What `Content-Length` says of a body of this length, in one line or more. */
const LENGTHS = {
  right: (length: number) => [length],
  twice: (length: number) => [length, length],
  list: (length: number) => [`${length}, ${length}`],
  plus: (length: number) => [`+${length}`],
  differ: (length: number) => [length, length + 1],
  hex: (length: number) => [`0x${length.toString(16)}`],
  negative: () => [-1],
  more: (length: number) => [length + 7],
  less: (length: number) => [Math.max(0, length - 2)],
}
const CHUNKINGS = [
  'chunked',
  'extension',
  'trailers',
  'unfinished',
  'bad size',
  'gzip',
  'with length',
] as const

/** How the end of the body is marked, and whether it comes: by a length, by chunks, or by that of the connection. */
type Framing = keyof typeof LENGTHS | (typeof CHUNKINGS)[number] | 'end' | 'reset'

/** A response of the resource server, and how the browser asks for it. Strings hold one character a byte. */
interface UpstreamResponse {
  method: 'GET' | 'HEAD'
  /** The browser sends its next request without waiting. */
  pipelined: boolean
  start: string
  interim: readonly string[]
  type: string | null
  headers: string[]
  body: string
  framing: Framing
  /** The bytes leave in so many parts. */
  parts: number
}

/** Fields that must not pass, whatever they say. */
const FORBIDDEN = words(
  'Set-Cookie Access-Control-Allow-Origin Clear-Site-Data Strict-Transport-Security Refresh Link Content-Security-Policy X-Content-Type-Options Server Report-To Service-Worker-Allowed SourceMap Alt-Svc Location Vary Via Proxy-Authenticate WWW-Authenticate Trailer Upgrade Content-Location Content-Type-X Connection',
)
const BENIGN = [
  ...FORBIDDEN.map((name) => `${name}: ${CANARY}`),
  ...[`X-${CANARY}: 1`, 'Connection: close', 'Connection: keep-alive, etag', 'Keep-Alive: timeout=1000'],
  ...['Cache-Control: private, max-age=60', 'Cache-Control: public', 'WWW-Authenticate: Basic realm="x"'],
  ...['ETag: "a"', 'ETag: "\xff\xfe"', 'ETag: "a", "b"', 'Retry-After: 7', 'Retry-After: \xe2\x82\xac'],
  ...['Content-Language: en', 'Content-Range: bytes 0-1/2', 'Accept-Ranges: bytes', 'Last-Modified: never'],
  ...['Content-Disposition: attachment; filename="\xe2\x82\xac"', 'Content-Encoding: identity'],
  ...['Trailer: Set-Cookie', 'Upgrade: h2c'],
]
/** No parser should accept these as HTTP. */
const MALFORMED = [
  ...['ETag: "a"\r\n b: c', 'ETag: "a\0b"', 'no colon', 'ETag : "a"', ': empty'],
  ...[`ETag: "a"\nSet-Cookie: a=${CANARY}`, `ETag: "a"\rSet-Cookie: a=${CANARY}`],
]
const TYPES = [
  ...words('application/json text/csv application/xml text/html application/xhtml+xml text/javascript'),
  ...words('application/javascript image/svg+xml nonsense application/json; */* text/xml'),
  ...['application/json; charset=utf-8', 'application/json; a="\xe2\x82\xac"', 'Text/HTML; charset=utf-8'],
  ...['', ' ', 'application/json\r\nContent-Type: text/html', 'text/html, application/json'],
]
const STATUSES = words('201 203 204 205 206 301 302 304 307 400 401 403 404 412 416 429 500 502 503')
const ODD_STARTS = [
  ...['HTTP/1.0 200 OK', 'HTTP/1.1 200', 'HTTP/1.1 999 Odd', 'HTTP/1.1 600 Odd', 'HTTP/2 200 OK', ''],
  ...['HTTP/1.1  200 OK', 'HTTP/1.1 20 OK', 'HTTP/1.1 101 Switching', 'ICY 200 OK', 'SSH-2.0-OpenSSH'],
  ...['http/1.1 200 ok'],
]
const EARLY = `HTTP/1.1 103 Early\r\nLink: </${CANARY}>\r\n\r\n`
const INTERIM = [EARLY, 'HTTP/1.1 102 Processing\r\n\r\n', 'HTTP/1.1 100 Continue\r\n\r\n']
const answer: fc.Arbitrary<UpstreamResponse> = fc.record({
  method: choose([2, 'GET'], [1, 'HEAD']),
  pipelined: fc.boolean(),
  start: choose(
    [8, 'HTTP/1.1 200 OK'],
    [4, ...STATUSES.map((status) => `HTTP/1.1 ${status} Whatever`)],
    [1, ...ODD_STARTS],
  ),
  interim: mix<string[]>([6, fc.constant([])], [1, fc.array(fc.constantFrom(...INTERIM), { maxLength: 40 })]),
  type: choose<string | null>([4, 'application/json'], [1, null], [2, ...TYPES]),
  headers: fc.array(choose([20, ...BENIGN], [1, ...MALFORMED]), { maxLength: 4 }),
  body: mix(
    [4, fc.constantFrom('{"a":9007199254740993}', '', '{}')],
    [
      1,
      fc.constantFrom(`HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n${CANARY}`, '{"error":"invalid_token"}'),
    ],
    [1, fc.integer({ min: 1, max: 120_000 }).map((length) => 'abcdefghij'.repeat(12_000).slice(0, length))],
    [1, fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes).toString('latin1'))],
  ),
  framing: choose<Framing>(
    [4, 'right', 'chunked'],
    [3, 'twice', 'list', 'plus', 'differ', 'hex', 'negative', 'more', 'less'],
    [3, ...CHUNKINGS.slice(1)],
    [2, 'end', 'reset'],
  ),
  parts: choose([2, 1], [2, 2, 5]),
})

function isChunked(framing: Framing): boolean {
  return CHUNKINGS.some((each) => each === framing)
}

/** The bytes of the response. */
function wireText({ start, interim, type, headers, body, framing }: UpstreamResponse): string {
  const { length } = body
  const lines = [start, ...headers, ...(type === null ? [] : [`Content-Type: ${type}`])]
  let sent = body
  if (framing in LENGTHS) {
    const values = LENGTHS[framing as keyof typeof LENGTHS](length)
    lines.push(...values.map((value) => `Content-Length: ${value}`))
  } else if (isChunked(framing)) {
    lines.push(`Transfer-Encoding: ${framing === 'gzip' ? 'gzip, chunked' : 'chunked'}`)
    if (framing === 'with length') lines.push(`Content-Length: ${length + 3}`)
    const size = framing === 'bad size' ? '0xg' : length.toString(16)
    const extension = framing === 'extension' ? `;${CANARY}="x"` : ''
    const chunk = length === 0 && framing !== 'bad size' ? '' : `${size}${extension}\r\n${body}\r\n`
    const trailers = framing === 'trailers' ? `Set-Cookie: a=${CANARY}\r\nContent-Length: 3\r\n` : ''
    sent = `${chunk}${framing === 'unfinished' ? '' : `0\r\n${trailers}\r\n`}`
  }
  return `${interim.join('')}${lines.join('\r\n')}\r\n\r\n${sent}`
}

async function write(socket: Socket, given: UpstreamResponse): Promise<void> {
  const bytes = Buffer.from(wireText(given), 'latin1')
  const { framing, parts } = given
  for (let part = 0; part < parts && !socket.destroyed; part += 1) {
    socket.write(bytes.subarray((part * bytes.length) / parts, ((part + 1) * bytes.length) / parts))
    if (part < parts - 1) await elapsed(1)
  }
  if (framing === 'reset') socket.resetAndDestroy()
  else if (framing !== 'right' && framing !== 'chunked') socket.end()
}

/** The bodies that HTTP/1.1 allows a reader to see in this response; none where it must not count as whole. */
function readings({ start, interim, headers, body, framing, method }: UpstreamResponse): string[] {
  const status = Number(start.split(/ +/)[1])
  const isMalformed =
    !/^HTTP\/1\.[01] \d{3}( |$)/.test(start) ||
    headers.some((line) => MALFORMED.some((each) => each === line)) ||
    interim.some((each) => each.includes(' 100 '))
  // A lenient parser may read some of it; `judge` checks the fields.
  if (method === 'HEAD' || status === 204 || status === 304) return ['']
  if (framing === 'less') return [body.slice(0, Math.max(0, body.length - 2))]
  if (!WHOLE.includes(framing)) return []
  return isChunked(framing) && isMalformed ? [body, ''] : [body]
}

const WHOLE = ['right', 'twice', 'list', 'end', 'reset', 'chunked', 'extension', 'trailers', 'with length']

interface Response {
  status: number
  headers: Map<string, string>
  body: string
  isComplete: boolean
}

/** Reads the responses on a connection as strictly as a browser may. Throws where they are not HTTP. */
function readResponses(text: string, methods: readonly string[]): { responses: Response[]; rest: string } {
  const responses: Response[] = []
  let rest = text
  for (const method of methods) {
    const end = rest.indexOf('\r\n\r\n')
    if (end < 0) break
    const [start = '', ...lines] = rest.slice(0, end).split('\r\n')
    if (!/^HTTP\/1\.1 [1-9]\d\d [\t\x20-\x7e]*$/.test(start))
      throw new Error(`status line: ${JSON.stringify(start)}`)
    const headers = new Map<string, string>()
    for (const line of lines) {
      const [, name, value] = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\t\x20-\x7e\x80-\xff]*)$/.exec(line) ?? []
      if (name === undefined) throw new Error(`header line: ${JSON.stringify(line)}`)
      if (headers.has(name.toLowerCase())) throw new Error(`repeated: ${name}`)
      headers.set(name.toLowerCase(), value!)
    }
    const status = Number(start.split(' ')[1])
    if (status < 200) throw new Error(`an interim response: ${start}`)
    rest = rest.slice(end + 4)
    let body: string | null = ''
    if (method !== 'HEAD' && status !== 204 && status !== 304) {
      const length = headers.get('content-length')
      const isChunked = headers.get('transfer-encoding') === 'chunked'
      if (length !== undefined && isChunked) throw new Error('a length and chunks')
      if (length === undefined && !isChunked) throw new Error('the end of the body is not marked')
      if (isChunked) [body, rest] = readChunks(rest)
      else if (!/^\d+$/.test(length!)) throw new Error(`length: ${length}`)
      else if (rest.length < Number(length)) [body, rest] = [null, '']
      else [body, rest] = [rest.slice(0, Number(length)), rest.slice(Number(length))]
    }
    responses.push({ status, headers, body: body ?? '', isComplete: body !== null })
    if (body === null) break
  }
  return { responses, rest }
}

/** null for a body without its last chunk. */
function readChunks(text: string): [body: string | null, rest: string] {
  let body = ''
  for (let rest = text; ; ) {
    const match = /^([0-9a-fA-F]+)\r\n/.exec(rest)
    if (match === null) return [null, '']
    const size = Number.parseInt(match[1]!, 16)
    rest = rest.slice(match[0].length)
    if (rest.length < size + 2) return [null, '']
    body += rest.slice(0, size)
    if (rest.slice(size, size + 2) !== '\r\n') throw new Error('a chunk without an end')
    rest = rest.slice(size + 2)
    if (size === 0) return [body, rest]
  }
}

const PASSED = words(
  'content-type content-disposition content-range etag last-modified retry-after content-encoding content-language accept-ranges content-length transfer-encoding connection keep-alive date',
)
const OURS = new Map([
  ['x-content-type-options', /^nosniff$/],
  ['content-security-policy', /^default-src 'none'; frame-ancestors 'none'; sandbox$/],
  ['cross-origin-resource-policy', /^same-origin$/],
  ['referrer-policy', /^no-referrer$/],
  ['cache-control', /^(no-store|private, no-cache)$/],
  ['vary', /^Cookie$/],
  ['x-request-id', /^[0-9a-z-]+$/],
])

/** Names the outcome. Throws unless this response is allowed for that of the resource server. */
function judge(given: UpstreamResponse, { status, headers, body, isComplete }: Response): string {
  const type = headers.get('content-type') ?? ''
  const leak = [...headers].find(([, value]) => value.includes(CANARY))
  if (leak !== undefined) throw new Error(`a header of the resource server: ${leak.join(': ')}`)
  if (type.startsWith('application/problem+json')) {
    if (given.method === 'HEAD') return `problem ${status}`
    const { code } = JSON.parse(body) as { code: string }
    if (code === 'internal_error') throw new Error('an internal error')
    return code
  }
  for (const [name, value] of headers) {
    const ours = OURS.get(name)
    if (ours === undefined ? !PASSED.includes(name) : !ours.test(value))
      throw new Error(`header ${name}: ${value}`)
  }
  const missing = [...OURS.keys()].find((name) => name !== 'vary' && !headers.has(name))
  if (missing !== undefined) throw new Error(`it lacks ${missing}`)
  if (status >= 300 && status < 400 && status !== 304) throw new Error(`a redirect: ${status}`)
  const mayRender = body !== '' || status === 304
  if (mayRender && /html|javascript|ecmascript/i.test(type)) throw new Error(`the type ${type}`)
  if (type === '' && body !== '') throw new Error('a body without a type')
  if (!isComplete) return 'cut'
  // libuv may report a reset as a normal end, and nothing but that end marks the end of such a body.
  if (given.framing === 'reset' && given.body.startsWith(body)) return 'relayed up to a reset'
  if (!readings(given).includes(body))
    throw new Error(`counts as whole: ${JSON.stringify(body.slice(0, 80))}`)
  return given.framing === 'right' || given.framing === 'chunked' ? 'relayed' : 'relayed, odd framing'
}

/** Sends the requests on one connection and returns its bytes until the server closed it. */
async function converse(port: number, requests: string): Promise<string> {
  const socket = net.connect(port, '127.0.0.1')
  socket.write(requests)
  let text = ''
  try {
    for await (const data of socket) text += (data as Buffer).toString('latin1')
  } catch (error) {
    if (!/ECONNRESET|EPIPE/.test(String(error))) throw error
  }
  return text
}

/** A resource server on bare sockets: `/flux/next` is valid, every other path gets the response of `current`. */
async function startUpstream(t: Teardown, current: () => UpstreamResponse): Promise<string> {
  const server = net.createServer((socket) => {
    socket.on('error', () => {})
    let text = ''
    socket.on('data', (data) => {
      text += data.toString('latin1')
      for (let end = text.indexOf('\r\n\r\n'); end >= 0; end = text.indexOf('\r\n\r\n')) {
        const path = text.split(' ', 2)[1]!
        text = text.slice(end + 4)
        if (path.includes('/flux/next')) socket.write(GOOD)
        else void write(socket, current())
      }
    })
  })
  return `http://127.0.0.1:${await listenOnLoopback(t, server)}`
}

const GOOD = 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\ngood'
const EXAMPLE: UpstreamResponse = {
  ...{ method: 'GET', pipelined: true, start: 'HTTP/1.1 200 OK', interim: [], type: 'application/json' },
  ...{ headers: [], body: '{"a":1}', framing: 'right', parts: 1 },
}

/** No response of the resource server is split, completed or relayed with a forbidden header or type. */
export const upstreamResponses = createFuzzer<UpstreamResponse>({
  name: 'upstream-responses',
  input: answer,
  examples: [
    ...MALFORMED.map((line) => ({ ...EXAMPLE, headers: [line] })),
    ...MALFORMED.map((line) => ({ ...EXAMPLE, headers: [line], method: 'HEAD' as const })),
    ...TYPES.map((type) => ({ ...EXAMPLE, type })),
    { ...EXAMPLE, start: 'HTTP/1.1 304 Not Modified' },
    { ...EXAMPLE, start: 'HTTP/1.1 204 No Content' },
    { ...EXAMPLE, start: 'HTTP/1.1 999 Odd' },
    { ...EXAMPLE, start: 'HTTP/1.1 101 Switching', headers: ['Upgrade: x', 'Connection: upgrade'] },
    { ...EXAMPLE, start: 'HTTP/1.0 200 OK', framing: 'end' },
    { ...EXAMPLE, interim: Array.from({ length: 2_000 }, () => EARLY) },
    { ...EXAMPLE, headers: ['Connection: content-length, content-type'] },
    { ...EXAMPLE, start: 'HTTP/1.1 403 No', headers: ['WWW-Authenticate: Bearer error="invalid_token"'] },
    { ...EXAMPLE, start: 'HTTP/1.1 404 Not Found', type: 'text/html', body: '<p>' },
    ...(['twice', 'list', 'more', 'trailers'] as const).map((framing) => ({ ...EXAMPLE, framing })),
    // Refused by us and then ended by the resource server.
    { ...EXAMPLE, type: null, body: 'x'.repeat(100_000), framing: 'end' },
    { ...EXAMPLE, type: 'text/html', body: 'x'.repeat(100_000), framing: 'end', parts: 5 },
  ],
  expects: [
    'relayed, odd framing',
    ...words('relayed cut upstream_unavailable upstream_refused upstream_error'),
  ],
  async start(t) {
    const sandbox = await startSandbox(t)
    let current = EXAMPLE
    const baseUrl = await startUpstream(t, () => current)
    const env = { ...QUIET, UPSTREAM_TIMEOUT_MS: String(PATIENCE_MS) }
    const bff = await startBff(t, { authUrl: sandbox.authUrl, baseUrl }, env)
    const browser = bff.browser()
    await signIn(browser, sandbox)
    const cookie = [...browser.cookies].map(([name, { value }]) => `${name}=${value}`).join('; ')
    const port = portOf(bff)
    const request = (method: string, path: string, isLast: boolean): string =>
      `${method} ${path} HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: same-origin\r\nCookie: ${cookie}\r\n${isLast ? 'Connection: close\r\n' : ''}\r\n`
    return async (given) => {
      current = given
      const { method, pipelined } = given
      const methods = pipelined ? [method, 'GET'] : [method]
      const requests = `${request(method, '/flux/odd', !pipelined)}${pipelined ? request('GET', '/auth/session', true) : ''}`
      const { responses, rest } = readResponses(await converse(port, requests), methods)
      if (rest !== '') throw new Error(`bytes after the last response: ${JSON.stringify(rest.slice(0, 200))}`)
      const [first, second] = responses
      if (first === undefined) return 'connection closed'
      const header = (name: string) => first.headers.get(name)
      if (first.isComplete) requireDocumented(port, { ...first, method, target: '/flux/odd', header })
      const outcome = judge(given, first)
      if (pipelined && first.isComplete && !second?.body.startsWith('{"authenticated":true'))
        throw new Error(`${outcome}, and then ${second?.status} ${second?.body}`)
      // Bytes beyond the announced length may count as the next response: nobody can tell them apart.
      const isLoose =
        given.framing === 'less' || /^HTTP\/1\.1 (204|304|101)/.test(given.start) || method === 'HEAD'
      if (!isLoose) {
        const next = await browser.fetch('/flux/next')
        if (next.text !== 'good') throw new Error(`the next request: ${next.status} ${next.text}`)
      }
      return outcome
    }
  },
})
