import net, { type Socket } from 'node:net'
import fc from 'fast-check'
import type { Teardown } from '../../test/helpers/child.ts'
import { requireDocumented } from '../../test/helpers/documented.ts'
import { listenOnLoopback } from '../../test/helpers/ports.ts'
import { signIn, startBff, startSandbox } from '../../test/helpers/system.ts'
import { elapsed } from '../../test/helpers/wait.ts'
import { portOf } from '../../test/http/wire.ts'
import { createFuzzer } from './fuzzer.ts'

const CANARY = 'c4n4ry'
const TIMEOUT_MS = 1_000

/** How the end of the body is marked, and whether it comes. */
type Framing =
  | {
      kind: 'length'
      value: 'right' | 'twice' | 'list' | 'plus' | 'differ' | 'hex' | 'negative' | 'more' | 'less'
    }
  | {
      kind: 'chunked'
      value: 'right' | 'extension' | 'trailers' | 'cut' | 'bad size' | 'gzip' | 'with length'
    }
  | { kind: 'close'; value: 'end' | 'reset' }

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

const BENIGN = [
  `X-${CANARY}: 1`,
  `Set-Cookie: session=${CANARY}`,
  'Access-Control-Allow-Origin: *',
  'Clear-Site-Data: "*"',
  `Strict-Transport-Security: max-age=0`,
  `Refresh: 0; url=//${CANARY}`,
  `Link: <//${CANARY}>; rel=preload`,
  `Content-Security-Policy: script-src ${CANARY}`,
  'X-Content-Type-Options: sniff',
  `Server: ${CANARY}`,
  `Report-To: ${CANARY}`,
  `Service-Worker-Allowed: /`,
  `SourceMap: ${CANARY}`,
  `Alt-Svc: h3="${CANARY}"`,
  `Location: //${CANARY}`,
  'Cache-Control: private, max-age=60',
  'Cache-Control: public',
  'Vary: *',
  'Connection: close',
  'Connection: keep-alive, etag',
  `Connection: ${CANARY}`,
  'Keep-Alive: timeout=1000',
  `Via: 1.1 ${CANARY}`,
  `Proxy-Authenticate: Basic realm="${CANARY}"`,
  'WWW-Authenticate: Basic realm="x"',
  'Trailer: Set-Cookie',
  'Upgrade: h2c',
  'ETag: "a"',
  'ETag: "\xff\xfe"',
  'ETag: "a", "b"',
  'Retry-After: 7',
  'Retry-After: \xe2\x82\xac',
  'Content-Language: en',
  'Content-Range: bytes 0-1/2',
  'Accept-Ranges: bytes',
  'Content-Disposition: attachment; filename="\xe2\x82\xac"',
  'Last-Modified: never',
  'Content-Encoding: identity',
  'Content-Location: /elsewhere',
  `Content-Type-X: ${CANARY}`,
] as const
/** No parser should accept these as HTTP. */
const MALFORMED = [
  'ETag: "a"\r\n b: c',
  `ETag: "a"\nSet-Cookie: a=${CANARY}`,
  'ETag: "a\0b"',
  'no colon',
  'ETag : "a"',
  ': empty',
  `ETag: "a"\rSet-Cookie: a=${CANARY}`,
] as const
const TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'text/csv',
  'application/xml',
  'application/json; a="\xe2\x82\xac"',
  'text/html',
  'Text/HTML; charset=utf-8',
  'application/xhtml+xml',
  'text/javascript',
  'application/javascript',
  'image/svg+xml',
  '',
  ' ',
  'nonsense',
  'application/json\r\nContent-Type: text/html',
  'text/html, application/json',
  'application/json;',
  '*/*',
  'text/xml',
] as const
const framing: fc.Arbitrary<Framing> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.constantFrom<Framing>(
      { kind: 'length', value: 'right' },
      { kind: 'chunked', value: 'right' },
    ),
  },
  {
    weight: 3,
    arbitrary: fc
      .constantFrom('twice', 'list', 'plus', 'differ', 'hex', 'negative', 'more', 'less')
      .map((value): Framing => ({ kind: 'length', value })),
  },
  {
    weight: 3,
    arbitrary: fc
      .constantFrom('extension', 'trailers', 'cut', 'bad size', 'gzip', 'with length')
      .map((value): Framing => ({ kind: 'chunked', value })),
  },
  {
    weight: 2,
    arbitrary: fc.constantFrom<Framing>({ kind: 'close', value: 'end' }, { kind: 'close', value: 'reset' }),
  },
)
const answer: fc.Arbitrary<UpstreamResponse> = fc.record({
  method: fc.constantFrom('GET', 'GET', 'HEAD'),
  pipelined: fc.boolean(),
  start: fc.oneof(
    { weight: 8, arbitrary: fc.constant('HTTP/1.1 200 OK') },
    {
      weight: 4,
      arbitrary: fc
        .constantFrom(
          201,
          203,
          204,
          205,
          206,
          301,
          302,
          304,
          307,
          400,
          401,
          403,
          404,
          412,
          416,
          429,
          500,
          502,
          503,
        )
        .map((status) => `HTTP/1.1 ${status} Whatever`),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        'HTTP/1.0 200 OK',
        'HTTP/1.1 200',
        'HTTP/1.1 999 Odd',
        'HTTP/1.1 600 Odd',
        'HTTP/2 200 OK',
        'HTTP/1.1  200 OK',
        'HTTP/1.1 20 OK',
        'HTTP/1.1 101 Switching',
        'ICY 200 OK',
        'SSH-2.0-OpenSSH',
        '',
        'http/1.1 200 ok',
      ),
    },
  ),
  interim: fc.oneof(
    { weight: 6, arbitrary: fc.constant<readonly string[]>([]) },
    {
      weight: 1,
      arbitrary: fc.array(
        fc.constantFrom(
          `HTTP/1.1 103 Early\r\nLink: </${CANARY}>\r\n\r\n`,
          'HTTP/1.1 102 Processing\r\n\r\n',
          'HTTP/1.1 100 Continue\r\n\r\n',
        ),
        { maxLength: 40 },
      ),
    },
  ),
  type: fc.oneof(
    { weight: 4, arbitrary: fc.constant('application/json') },
    { weight: 1, arbitrary: fc.constant(null) },
    { weight: 2, arbitrary: fc.constantFrom(...TYPES) },
  ),
  headers: fc.array(
    fc.oneof(
      { weight: 20, arbitrary: fc.constantFrom(...BENIGN) },
      { weight: 1, arbitrary: fc.constantFrom(...MALFORMED) },
    ),
    { maxLength: 4 },
  ),
  body: fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom('{"a":9007199254740993}', '', '{}') },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        `HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n${CANARY}`,
        '{"error":"invalid_token"}',
      ),
    },
    {
      weight: 1,
      arbitrary: fc
        .integer({ min: 1, max: 120_000 })
        .map((length) => 'abcdefghij'.repeat(length / 10 + 1).slice(0, length)),
    },
    {
      weight: 1,
      arbitrary: fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes).toString('latin1')),
    },
  ),
  framing,
  parts: fc.constantFrom(1, 1, 2, 5),
})

/** The bytes of the response. */
function wireText({ start, interim, type, headers, body, framing }: UpstreamResponse): string {
  const lines = [start, ...headers]
  if (type !== null) lines.push(`Content-Type: ${type}`)
  const { length } = body
  switch (framing.kind) {
    case 'length': {
      const lengths = {
        right: [length],
        twice: [length, length],
        list: [`${length}, ${length}`],
        plus: [`+${length}`],
        differ: [length, length + 1],
        hex: [`0x${length.toString(16)}`],
        negative: [-1],
        more: [length + 7],
        less: [Math.max(0, length - 2)],
      }[framing.value]
      return `${interim.join('')}${[...lines, ...lengths.map((value) => `Content-Length: ${value}`)].join('\r\n')}\r\n\r\n${body}`
    }
    case 'chunked': {
      lines.push(`Transfer-Encoding: ${framing.value === 'gzip' ? 'gzip, chunked' : 'chunked'}`)
      if (framing.value === 'with length') lines.push(`Content-Length: ${length + 3}`)
      const size = framing.value === 'bad size' ? '0xg' : length.toString(16)
      const extension = framing.value === 'extension' ? `;${CANARY}="x"` : ''
      const chunk = length === 0 && framing.value !== 'bad size' ? '' : `${size}${extension}\r\n${body}\r\n`
      const trailers = framing.value === 'trailers' ? `Set-Cookie: a=${CANARY}\r\nContent-Length: 3\r\n` : ''
      const end = framing.value === 'cut' ? '' : `0\r\n${trailers}\r\n`
      return `${interim.join('')}${lines.join('\r\n')}\r\n\r\n${chunk}${end}`
    }
    case 'close':
      return `${interim.join('')}${lines.join('\r\n')}\r\n\r\n${body}`
  }
}

async function write(socket: Socket, given: UpstreamResponse): Promise<void> {
  const bytes = Buffer.from(wireText(given), 'latin1')
  const { framing, parts } = given
  for (let part = 0; part < parts && !socket.destroyed; part += 1) {
    socket.write(bytes.subarray((part * bytes.length) / parts, ((part + 1) * bytes.length) / parts))
    if (part < parts - 1) await elapsed(1)
  }
  if (framing.kind === 'close' && framing.value === 'reset') socket.resetAndDestroy()
  else if (framing.value !== 'right') socket.end()
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
  switch (framing.kind) {
    case 'length':
      switch (framing.value) {
        case 'right':
        case 'twice':
        case 'list':
          return [body]
        case 'less':
          return [body.slice(0, Math.max(0, body.length - 2))]
        default:
          return []
      }
    case 'chunked':
      if (framing.value === 'cut' || framing.value === 'bad size' || framing.value === 'gzip') return []
      return isMalformed ? [body, ''] : [body]
    case 'close':
      return [body]
  }
}

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

const PASSED = new Set([
  'content-type',
  'content-disposition',
  'content-range',
  'etag',
  'last-modified',
  'retry-after',
  'content-encoding',
  'content-language',
  'accept-ranges',
  'content-length',
  'transfer-encoding',
  'connection',
  'keep-alive',
  'date',
])
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
  for (const [name, value] of headers) {
    if (value.includes(CANARY)) throw new Error(`a header of the resource server: ${name}: ${value}`)
  }
  if (type.startsWith('application/problem+json')) {
    if (given.method === 'HEAD') return `problem ${status}`
    const { code } = JSON.parse(body) as { code: string }
    if (code === 'internal_error') throw new Error('an internal error')
    return code
  }
  for (const [name, value] of headers) {
    const ours = OURS.get(name)
    if (ours === undefined ? !PASSED.has(name) : !ours.test(value))
      throw new Error(`header ${name}: ${value}`)
  }
  for (const name of OURS.keys()) {
    if (name !== 'vary' && !headers.has(name)) throw new Error(`it lacks ${name}`)
  }
  if (status >= 300 && status < 400 && status !== 304) throw new Error(`a redirect: ${status}`)
  const mayRender = body !== '' || status === 304
  if (mayRender && /html|javascript|ecmascript/i.test(type)) throw new Error(`the type ${type}`)
  if (type === '' && body !== '') throw new Error('a body without a type')
  if (!isComplete) return 'cut'
  // libuv may report a reset as a normal end, and nothing but that end marks the end of such a body.
  if (given.framing.value === 'reset' && given.body.startsWith(body)) return 'relayed up to a reset'
  if (!readings(given).includes(body))
    throw new Error(`counts as whole: ${JSON.stringify(body.slice(0, 80))}`)
  return given.framing.value === 'right' ? 'relayed' : 'relayed, odd framing'
}

/** Sends the requests on one connection and returns its bytes until it closed, or all responses were there. */
function converse(port: number, requests: string, methods: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = ''
    const socket = net.connect(port, '127.0.0.1', () => socket.write(requests))
    const timer = setTimeout(
      () => socket.destroy(new Error(`no end after ${JSON.stringify(text.slice(0, 200))}`)),
      5_000,
    )
    socket.on('data', (data) => {
      text += data.toString('latin1')
      try {
        const { responses } = readResponses(text, methods)
        if (responses.length === methods.length && responses.every(({ isComplete }) => isComplete)) {
          // Bytes after the last response would arrive now.
          setImmediate(() => socket.destroy())
        }
      } catch {
        // The caller reads the whole text again.
      }
    })
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ECONNRESET' && error.code !== 'EPIPE') reject(error)
    })
    socket.on('close', () => {
      clearTimeout(timer)
      resolve(text)
    })
  })
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
  method: 'GET',
  pipelined: true,
  start: 'HTTP/1.1 200 OK',
  interim: [],
  type: 'application/json',
  headers: [],
  body: '{"a":1}',
  framing: { kind: 'length', value: 'right' },
  parts: 1,
}

/** No response of the resource server is split, completed or relayed with a forbidden header or type. */
export const upstreamResponses = createFuzzer<UpstreamResponse>({
  name: 'upstream-responses',
  input: answer,
  examples: [
    ...MALFORMED.flatMap((line) => [
      { ...EXAMPLE, headers: [line] },
      { ...EXAMPLE, headers: [line], method: 'HEAD' as const },
    ]),
    ...TYPES.map((type) => ({ ...EXAMPLE, type })),
    { ...EXAMPLE, start: 'HTTP/1.1 304 Not Modified', framing: { kind: 'length', value: 'right' } },
    { ...EXAMPLE, start: 'HTTP/1.1 204 No Content' },
    { ...EXAMPLE, start: 'HTTP/1.1 999 Odd' },
    { ...EXAMPLE, start: 'HTTP/1.1 101 Switching', headers: ['Upgrade: x', 'Connection: upgrade'] },
    { ...EXAMPLE, start: 'HTTP/1.0 200 OK', framing: { kind: 'close', value: 'end' } },
    { ...EXAMPLE, interim: Array.from({ length: 2_000 }, () => 'HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n') },
    { ...EXAMPLE, headers: ['Connection: content-length, content-type'] },
    {
      ...EXAMPLE,
      start: 'HTTP/1.1 403 Forbidden',
      headers: ['WWW-Authenticate: Bearer error="invalid_token"'],
    },
    { ...EXAMPLE, start: 'HTTP/1.1 404 Not Found', type: 'text/html', body: '<p>' },
    { ...EXAMPLE, framing: { kind: 'length', value: 'twice' } },
    { ...EXAMPLE, framing: { kind: 'length', value: 'list' } },
    { ...EXAMPLE, framing: { kind: 'chunked', value: 'trailers' } },
    { ...EXAMPLE, framing: { kind: 'length', value: 'more' } },
    // Refused by us and then ended by the resource server.
    { ...EXAMPLE, type: null, body: 'x'.repeat(100_000), framing: { kind: 'close', value: 'end' } },
    {
      ...EXAMPLE,
      type: 'text/html',
      body: 'x'.repeat(100_000),
      framing: { kind: 'close', value: 'end' },
      parts: 5,
    },
  ],
  expects: [
    'relayed',
    'relayed, odd framing',
    'cut',
    'upstream_unavailable',
    'upstream_refused',
    'upstream_error',
  ],
  async start(t) {
    const sandbox = await startSandbox(t)
    let current = EXAMPLE
    const baseUrl = await startUpstream(t, () => current)
    const bff = await startBff(
      t,
      { authUrl: sandbox.authUrl, baseUrl },
      { UPSTREAM_TIMEOUT_MS: String(TIMEOUT_MS), ACCESS_LOG: 'off', LOG_LEVEL: 'silent' },
    )
    const browser = bff.browser()
    await signIn(browser, sandbox)
    const cookie = [...browser.cookies].map(([name, { value }]) => `${name}=${value}`).join('; ')
    const port = portOf(bff)
    const request = (method: string, path: string): string =>
      `${method} ${path} HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: same-origin\r\nCookie: ${cookie}\r\n\r\n`
    return async (given) => {
      current = given
      const { method, pipelined } = given
      const methods = pipelined ? [method, 'GET'] : [method]
      const requests = `${request(method, '/flux/odd')}${pipelined ? request('GET', '/auth/session') : ''}`
      const { responses, rest } = readResponses(await converse(port, requests, methods), methods)
      if (rest !== '') throw new Error(`bytes after the last response: ${JSON.stringify(rest.slice(0, 200))}`)
      const [first, second] = responses
      if (first === undefined) return 'connection closed'
      const { status, headers, body } = first
      if (first.isComplete)
        requireDocumented(port, {
          method,
          target: '/flux/odd',
          status,
          header: (name) => headers.get(name),
          body,
        })
      const outcome = judge(given, first)
      if (pipelined && first.isComplete && second === undefined)
        throw new Error(`${outcome}, and no second response`)
      if (
        second !== undefined &&
        (second.status !== 200 || !second.body.startsWith('{"authenticated":true'))
      ) {
        throw new Error(`the second response: ${second.status} ${second.body}`)
      }
      // Bytes beyond the announced length may count as the next response: nobody can tell them apart.
      const isLoose =
        given.framing.value === 'less' || /^HTTP\/1\.1 (204|304|101)/.test(given.start) || method === 'HEAD'
      if (!isLoose) {
        const next = await browser.fetch('/flux/next')
        if (next.text !== 'good') throw new Error(`the next request: ${next.status} ${next.text}`)
      }
      return outcome
    }
  },
})
