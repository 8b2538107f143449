import fc from 'fast-check'
import t from 'tap'
import type { JournalEntry } from '../../src/sandbox/journal.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { portOf, speak } from '../http/wire.ts'
import { CANARY, question } from './odd-requests.ts'

const RUNS = 400
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
