import fc from 'fast-check'
import type { JournalEntry } from '../../sandbox/journal.ts'
import type { SandboxOptions } from '../../sandbox/settings.ts'
import type { Teardown } from '../../test/helpers/child.ts'
import { signIn, startBff, startSandbox } from '../../test/helpers/system.ts'
import { portOf, type Question, speak } from '../../test/http/wire.ts'
import { BAD_FLUX, BAD_SITE, BAD_WAC, GOOD } from '../../test/proxy/odd-paths.ts'
import { choose, createFuzzer, mix, QUIET, words } from './fuzzer.ts'

/** Occurs only in requests of the browser. */
export const CANARY = 'c4n4ry'

const ODD = [...words('.. . %2e %2f %5c %00 %0d%0a // / \\ ; ? & = + %25 % # @ : é " < {'), ' ']
const WORDS = words('flux site DEMO ACME a 42 json reply UpdateSite Infrastructure Site oauth token .json')
const NAMES = words(
  'access_token oauth_token callback format Access_Token access%5ftoken x jsconfig wac siteID',
)
export const FIELDS = words(
  'Authorization Cookie X-Forwarded-For X-Forwarded-Host Forwarded X-HTTP-Method-Override X-Method-Override X-Original-URL X-Rewrite-URL Proxy-Authorization Connection TE Trailer Upgrade Keep-Alive Referer User-Agent X-CSRF X-Access-Token Accept-Charset Range If-None-Match Accept-Language Accept-Encoding Accept Via traceparent Content-Language From Max-Forwards DNT Sec-Fetch-User Host',
)

const visible = fc.stringMatching(/^[\x21-\x7e]{0,12}$/)
const piece = mix([4, fc.constantFrom(...WORDS, CANARY)], [3, fc.constantFrom(...ODD)], [1, visible])
export const segment = fc.array(piece, { maxLength: 4 }).map((pieces) => pieces.join(''))
const parameter = fc
  .tuple(
    fc.oneof(fc.constantFrom(...NAMES, CANARY), visible),
    fc.oneof(fc.constant(CANARY), visible, segment),
  )
  .map(([name, value]) => `${name}=${value}`)
const path = fc
  .tuple(
    choose([2, '/flux'], [4, '/site', '/Flux', '//flux', '/x/../flux']),
    fc.array(mix([2, fc.constantFrom('a', 'DEMO', '42')], [1, segment]), { minLength: 1, maxLength: 3 }),
  )
  .map(([first, segments]) => [first, ...segments].join('/'))
const ROUTES = [
  'GET /flux/a',
  'HEAD /flux/a',
  'GET /flux/ACME/a.b~c',
  'PUT /site/42',
  'PUT /site/ACME/42.json',
]
const start = mix(
  [3, fc.constantFrom(...ROUTES, 'POST /site').map((route) => splitOnce(route, ' '))],
  [2, fc.tuple(fc.constantFrom('GET', 'HEAD', 'PUT', 'POST'), path)],
)
const query = fc.oneof(
  fc.constant([]),
  fc.array(mix([3, fc.constantFrom('x=1', 'format=json', `note=${CANARY}`)], [1, parameter]), {
    maxLength: 3,
  }),
)
const value = fc.oneof(
  fc.constantFrom(`Bearer ${CANARY}`, `${CANARY}, authorization, via, close`, 'application/json'),
  fc.stringMatching(/^[\x21-\x7e]([\x20-\x7e]{0,20}[\x21-\x7e])?$/),
)
/** A request that may be valid, or odd in any of its parts. */
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

/** Headers that a request to the resource server may have: ours, and those of the browser that pass. */
const OURS = words('host connection content-length authorization accept content-type user-agent x-request-id')
const PASSED = words(
  'via accept-encoding accept-language if-match if-none-match if-modified-since if-unmodified-since if-range range traceparent',
)

const PATH =
  /^\/(?:(?!\.{1,2}\/)[A-Za-z0-9_.~-]{1,64}\/flux\/(?!\.{1,2}\?)[A-Za-z0-9_.~-]{1,128}|(?!\.{1,2}\/)[A-Za-z0-9_.~-]{1,64}\/Infrastructure\/Site\/\d{1,16}|json\/reply\/UpdateSite)(\?[\x21-\x7e]*)?$/

/** Throws unless the headers are of the allow-list, each once, with one of our tokens and no value of the browser in ours. */
function checkHeaders({ rawHeaders }: JournalEntry, host: string, tokens: ReadonlySet<string>): void {
  const names: string[] = []
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!.toLowerCase()
    const text = rawHeaders[at + 1]!
    if (!OURS.includes(name) && !PASSED.includes(name))
      throw new Error(`a header that is not allowed: ${name}`)
    if (names.includes(name)) throw new Error(`twice: ${name}`)
    names.push(name)
    if (OURS.includes(name) && text.includes(CANARY))
      throw new Error(`a value of the browser: ${name}: ${text}`)
    if (name === 'authorization' && !tokens.has(text)) throw new Error(`not our token: ${text}`)
    if (name === 'host' && text !== host) throw new Error(`another host: ${text}`)
  }
  if (!names.includes('authorization')) throw new Error('no token')
}

/** Throws unless the resource server got a documented request, and the one that the browser named. */
function check({ url, kind, body }: JournalEntry, asked: string): void {
  // A space ends the target.
  const target = splitOnce(asked, ' ')[0]
  if (!PATH.test(url) || url.includes('#')) throw new Error(`not a documented path: ${url}`)
  const [path = '', query = ''] = splitOnce(url, '?')
  if (path !== expectedPath(target)) throw new Error(`not the requested path: ${url}`)
  const sent = pairs(query)
  for (const [name] of sent) {
    if (/^(access_token|oauth_token)$/i.test(name)) throw new Error(`a token of the browser: ${url}`)
    if (/^callback$/i.test(name) && kind === 'GetFlux') throw new Error(`a script: ${url}`)
  }
  if (kind === 'GetFlux') {
    const others = (all: [string, string][]) => all.filter(([name]) => name.trim().toLowerCase() !== 'format')
    const wanted = pairs(splitOnce(target, '?')[1])
    if (JSON.stringify(others(sent)) !== JSON.stringify(others(wanted))) {
      throw new Error(`not the requested parameters: ${url}`)
    }
    if (sent.length - others(sent).length !== 1) throw new Error(`format: ${url}`)
  } else if (sent.some(([name]) => name !== 'format' && name !== 'callback')) {
    throw new Error(`a parameter that an update does not have: ${url}`)
  }
  if (body?.includes(CANARY)) throw new Error(`an unknown member: ${body}`)
}

/** The upstream path for a request target of the browser, read segment by segment; null where there is none. */
function expectedPath(target: string): string | null {
  const [, first, ...parts] = splitOnce(target, '?')[0].split('/').map(decodeURIComponent)
  const [wac, id] = parts.length === 2 ? parts : ['DEMO', parts[0]]
  if (first === 'flux' && id !== undefined) return `/${wac}/flux/${id}`
  if (first === 'site' && id !== undefined) {
    return `/${wac}/Infrastructure/Site/${Number(id.replace(/\.json$/, ''))}`
  }
  return first === 'site' || first === 'site.json' ? '/json/reply/UpdateSite' : null
}

export function pairs(query: string): [string, string][] {
  const decode = (text: string): string => decodeURIComponent(text.replaceAll('+', ' '))
  const pieces = query.split('&').filter((piece) => piece !== '')
  return pieces.map((piece) => splitOnce(piece, '=').map(decode) as [string, string])
}

function splitOnce(text: string, mark: string): [string, string] {
  const at = text.indexOf(mark)
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)]
}

const get = (target: string): Question => ({ method: 'GET', target })
const put = (target: string): Question => ({ method: 'PUT', target, body: '{}' })
const isVisible = (text: string): boolean => /^[\x21-\x7e]*$/.test(text)

/** A server in front of a sandbox, with a session, and the access tokens that the resource server may get. */
export async function startSignedIn(t: Teardown, env = {}, operations: SandboxOptions['operations'] = []) {
  const sandbox = await startSandbox(t, { operations })
  const bff = await startBff(t, sandbox, { ...QUIET, ...env })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  await browser.fetch('/flux/a')
  const session = browser.cookies.get('session')!.value
  const entries = sandbox.journal.entries({ endpoint: 'resource' })
  const tokens = new Set(entries.map(({ headers }) => headers.authorization!))
  const { host } = new URL(sandbox.baseUrl)

  return {
    /**
     * Sends the request with the session. Returns what reached the resource server, with headers that are right, or
     * else the status of the response.
     */
    async send(question: Question): Promise<JournalEntry | number> {
      const { method = 'GET', target, headers = [], body = '' } = question
      sandbox.journal.clear()
      const sendsBody = method !== 'GET' && method !== 'HEAD' && method !== 'DELETE'
      const lines = [
        `${method} ${target} HTTP/1.1`,
        `Host: ${new URL(bff.publicUrl).host}`,
        'Sec-Fetch-Site: same-origin',
        `Cookie: session=${session}`,
        'Connection: close',
        ...(sendsBody ? ['Content-Type: application/json', `Content-Length: ${body.length}`] : []),
        ...headers.map(([name, text]) => `${name}: ${text}`),
      ]
      const bytes = `${lines.join('\r\n')}\r\n\r\n${sendsBody ? body : ''}`
      const { answers, rest } = await speak(portOf(bff), bytes)
      const [answer] = answers
      // A request that the parser refuses has no known method, so its response has a body even for HEAD.
      if (answer === undefined || answers.length > 1 || (rest !== '' && method !== 'HEAD'))
        throw new Error(`responses: ${JSON.stringify(answers)} ${rest}`)
      const { status } = answer
      if (status === 500) throw new Error('an internal error')
      if (status >= 300 && status < 400 && status !== 304) throw new Error(`a redirect: ${status}`)
      if (answer.headers.has('set-cookie')) throw new Error('a cookie')
      const [entry, ...more] = sandbox.journal.entries()
      if (more.length > 0) throw new Error(`${more.length + 1} requests went upstream`)
      if (entry === undefined) return status
      if (entry.endpoint !== 'resource') throw new Error(`it reached ${entry.endpoint}`)
      checkHeaders(entry, host, tokens)
      return entry
    },
  }
}

/** For any request to /flux and /site the resource server gets the documented request that it names, with our token. */
export const requests = createFuzzer<Question>({
  name: 'requests',
  input: question,
  examples: [
    ...GOOD.map(([target]) => get(target)),
    ...BAD_FLUX.filter(isVisible).map((id) => get(`/flux/${id}`)),
    ...BAD_WAC.filter(isVisible).map((wac) => get(`/flux/${wac}/a`)),
    ...BAD_SITE.filter(isVisible).map((id) => put(`/site/${id}`)),
  ],
  expects: ['GetFlux', 'UpdateSite', '400', '404'],
  async start(t) {
    const { send } = await startSignedIn(t)
    return async (given) => {
      const sent = await send(given)
      if (typeof sent === 'number') return String(sent)
      check(sent, given.target!)
      return String(sent.kind)
    }
  },
})
