import type { Socket } from 'node:net'
import fc from 'fast-check'
import type { TokenOutcome } from '../../src/oauth/token-response.ts'
import { Secret } from '../../src/secret.ts'
import { PATIENCE_MS } from '../../test/helpers/wait.ts'
import { bounds, clientOf, rawTokenEndpoint } from '../../test/oauth/raw-token-endpoint.ts'
import { choose, createFuzzer, mix, words } from './fuzzer.ts'

const CANARY = 'c4n4ry'
const MAX_BYTES = 65_536

/** A response of the token endpoint. */
interface TokenAnswer {
  status: number
  headers: string[]
  /** One character a byte. */
  body: string
  /** `short` and `reset` break off before the announced end. */
  framing: 'length' | 'chunked' | 'close' | 'short' | 'reset'
  retryAfter: string | null
}

const odd = fc.constantFrom<unknown>(
  ...[null, true, 0, -1, 0.5, 1, 60, 1e300, [], {}, [1], { a: 1 }, CANARY, 'ä', 'a\r\nb', 'a b', '\u0000'],
  ...['', ' ', '0', '60', '-5', '1e3', 'soon', '99999999999999999999'],
)
const NAMES = words(
  `access_token refresh_token expires_in token_type scope id_token error error_description __proto__ constructor callback ${CANARY}`,
)
const members = fc.dictionary(fc.constantFrom(...NAMES), odd, { maxKeys: 4 })
const tokens = fc.record(
  {
    access_token: mix<unknown>([4, fc.constant('at-1')], [1, odd]),
    refresh_token: mix<unknown>([4, fc.constant('rt-1')], [1, odd]),
    token_type: mix<unknown>(
      [5, choose([4, 'bearer', 'Bearer', 'BEARER'], [1, 'mac', 'DPoP', 'N_A', 'bearer '])],
      [1, odd],
    ),
    expires_in: odd,
    scope: odd,
  },
  { requiredKeys: ['access_token'] },
)
const CODES = words(
  'invalid_grant invalid_scope invalid_client invalid_request server_error INVALID_GRANT temporarily_unavailable',
)
const error = fc.record(
  {
    error: mix<unknown>(
      [3, choose([1, 'invalid_grant'], [1, ...CODES, 'invalid_grant ', '\u001b[2J'])],
      [1, odd],
    ),
    error_description: odd,
  },
  { requiredKeys: ['error'] },
)
const json = mix<unknown>([3, tokens], [3, error], [1, members]).chain((value) =>
  mix(
    [6, fc.constant(JSON.stringify(value))],
    [1, fc.constant(JSON.stringify(value, null, 2))],
    [1, fc.constant(JSON.stringify([value]))],
    [1, fc.integer({ min: 0, max: 60 }).map((cut) => JSON.stringify(value).slice(0, cut))],
  ),
)
const NO_JSON = [
  ...['', 'null', '"text"', '[]', '{}', `<html>${CANARY}</html>`, 'error=invalid_grant'],
  `{"access_token":"at-1","x":"${'x'.repeat(MAX_BYTES)}"}`,
  '{"error":"invalid_grant","error":"x"}',
]
const CODINGS = {
  plain: (text: string) => Buffer.from(text),
  bom: (text: string) => Buffer.from(`\ufeff${text}`),
  utf16le: (text: string) => Buffer.from(`\ufeff${text}`, 'utf16le'),
  latin1: (text: string) => Buffer.from(text, 'latin1'),
  bytes: (text: string) => Buffer.concat([Buffer.from([0xff, 0xfe, 0x80]), Buffer.from(text)]),
}
const body = fc
  .tuple(
    mix([8, json], [1, fc.constantFrom(...NO_JSON)]),
    choose([5, 'plain'], [4, 'bom', 'utf16le', 'latin1', 'bytes']),
  )
  .map(([text, coding]) => CODINGS[coding](text).toString('latin1'))
const TYPES = words(`application/json text/html text/plain application/jwt ${CANARY} `)
const CHALLENGES = ['Basic realm="x"', '', 'Bearer error="invalid_grant"', `,,=${CANARY}"`]
const HEADERS = [
  ...[...TYPES, 'application/json; charset=utf-8', 'application/json; charset=utf-16'].map(
    (type) => `Content-Type: ${type}`,
  ),
  ...CHALLENGES.map((challenge) => `WWW-Authenticate: ${challenge}`),
  ...['Content-Encoding: gzip', 'Location: /elsewhere', `Set-Cookie: a=${CANARY}`, `X-${CANARY}: ${CANARY}`],
  ...['Cache-Control: no-store', 'Transfer-Encoding-X: gzip', 'Date: never'],
]
const STATUSES = [201, 202, 204, 206, 301, 302, 304, 307, 403, 404, 408, 429, 500, 502, 504]
const answer: fc.Arbitrary<TokenAnswer> = fc.record({
  status: mix(
    [10, choose([5, 200], [4, 400, 401], [1, 503])],
    [2, fc.constantFrom(...STATUSES)],
    [1, fc.integer({ min: 200, max: 999 })],
  ),
  headers: fc.array(fc.constantFrom(...HEADERS), { maxLength: 4 }),
  body,
  framing: choose([3, 'length'], [4, 'chunked', 'close', 'short', 'reset']),
  retryAfter: choose<string | null>(
    [1, null],
    [5, '3', '0', '86400', 'soon', '-1', '1.5', '', '3, 4', 'Fri, 01 Jan 2100 00:00:00 GMT'],
  ),
})

function send(socket: Socket, { status, headers, body: bytes, framing, retryAfter }: TokenAnswer): void {
  const body = Buffer.from(bytes, 'latin1')
  const lines = [`HTTP/1.1 ${status} Whatever`, ...headers]
  if (retryAfter !== null) lines.push(`Retry-After: ${retryAfter}`)
  if (framing === 'length') lines.push(`Content-Length: ${body.length}`)
  else if (framing === 'chunked') lines.push('Transfer-Encoding: chunked')
  else if (framing !== 'close') lines.push(`Content-Length: ${body.length + 9}`)
  const chunk = [Buffer.from(`${body.length.toString(16)}\r\n`), body, Buffer.from('\r\n')]
  const parts = framing === 'chunked' ? [...(body.length > 0 ? chunk : []), Buffer.from('0\r\n\r\n')] : [body]
  socket.write(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`), ...parts]), () => {
    if (framing === 'reset') socket.resetAndDestroy()
    else if (framing === 'close' || framing === 'short') socket.end()
  })
}

function parsed(bytes: string): Record<string, unknown> | null {
  const body = Buffer.from(bytes, 'latin1')
  if (body.length > MAX_BYTES) return null
  try {
    const value: unknown = JSON.parse(body.toString('utf8').replace(/^\ufeff/, ''))
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
    return isObject ? (value as Record<string, unknown>) : null
  } catch {
    return null
  }
}

function lifeOf(expiresIn: unknown): number {
  if (expiresIn === undefined || expiresIn === null) return 3_600
  const isNumber = typeof expiresIn === 'number' || (typeof expiresIn === 'string' && /^\d+$/.test(expiresIn))
  return isNumber ? Math.floor(Math.min(Math.max(Number(expiresIn), 0), 86_400)) : 0
}

/** The outcomes that decision 0002 permits for a response. */
function permitted({ status, body, framing, retryAfter }: TokenAnswer): TokenOutcome['kind'][] {
  const value = parsed(body)
  const isCut = framing === 'short' || framing === 'reset'
  // These statuses have no body, so the bytes are the beginning of another response.
  if (status < 300 || status > 599) {
    const { access_token: token, token_type: type } = value ?? {}
    const isBearer =
      type === undefined || type === null || (typeof type === 'string' && type.toLowerCase() === 'bearer')
    const isUsable = typeof token === 'string' && /^[\x21-\x7e]+$/.test(token) && isBearer
    return [status === 200 && isUsable && !isCut ? 'granted' : 'in_doubt']
  }
  if (status >= 500) {
    const asksToWait = retryAfter !== null && (/^\d+$/.test(retryAfter) || / GMT$/.test(retryAfter))
    return [status === 503 && asksToWait ? 'unavailable' : 'in_doubt']
  }
  if (status < 400) return ['in_doubt']
  const isRefusal = status !== 429 && (value?.error === 'invalid_grant' || value?.error === 'invalid_scope')
  if (!isRefusal) return ['unavailable']
  return isCut ? ['refused', 'unavailable'] : ['refused']
}

function requireGranted(outcome: TokenOutcome, { body }: TokenAnswer): void {
  if (outcome.kind !== 'granted') return
  const { access_token, refresh_token, expires_in, scope } = parsed(body)!
  const { accessToken, refreshToken, lifeSeconds, scope: granted } = outcome.tokens
  const kept = (text: unknown) => (typeof text === 'string' ? text : null)
  const expected = [access_token, kept(refresh_token) || null, lifeOf(expires_in), kept(scope)]
  const found = [accessToken.reveal(), refreshToken?.reveal() ?? null, lifeSeconds, granted]
  if (JSON.stringify(found) !== JSON.stringify(expected)) {
    throw new Error(`granted ${JSON.stringify(found)} instead of ${JSON.stringify(expected)}`)
  }
}

const EXAMPLE: TokenAnswer = {
  ...{ status: 200, headers: ['Content-Type: application/json'], framing: 'length', retryAfter: null },
  body: '{"access_token":"at-1","refresh_token":"rt-1","token_type":"bearer"}',
}

/** Each response of the token endpoint leads to the outcome that decision 0002 names. */
export const tokenResponses = createFuzzer<TokenAnswer>({
  name: 'token-responses',
  input: answer,
  // One for each expected outcome, so that short runs reach them all.
  examples: [
    EXAMPLE,
    { ...EXAMPLE, status: 400, body: '{"error":"invalid_grant"}' },
    { ...EXAMPLE, status: 400, body: '{"error":"invalid_request"}' },
    { ...EXAMPLE, status: 500 },
  ],
  expects: ['granted', 'refused', 'unavailable', 'in_doubt'],
  async start(t) {
    let current: TokenAnswer | null = null
    const { url } = await rawTokenEndpoint(t, (socket) => send(socket, current!))
    const client = clientOf(t, url)
    const token = new Secret('rt-0')
    return async (given) => {
      current = given
      const outcome = await client.refresh(token, bounds(PATIENCE_MS))
      const kinds = permitted(given)
      if (!kinds.includes(outcome.kind)) {
        throw new Error(`${JSON.stringify(outcome)} instead of ${kinds.join(' or ')}`)
      }
      requireGranted(outcome, given)
      // Of the response only an error code and its description may be logged.
      const { error: code, error_description: description } = parsed(given.body) ?? {}
      const isLogged = outcome.kind !== 'granted' && JSON.stringify(outcome).includes(CANARY)
      if (isLogged && code !== CANARY && description !== CANARY)
        throw new Error(`it is logged: ${JSON.stringify(outcome)}`)
      return outcome.kind
    }
  },
})
