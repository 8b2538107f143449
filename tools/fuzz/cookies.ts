import fc from 'fast-check'
import { createSessionCookies } from '../../src/http/cookies.ts'
import { createKeyring } from '../../src/keyring.ts'
import { Secret } from '../../src/secret.ts'
import type { Browser } from '../../test/helpers/browser.ts'
import { signIn, startBff, startSandbox } from '../../test/helpers/system.ts'
import { portOf, speak, type WireAnswer } from '../../test/http/wire.ts'
import { choose, createFuzzer, mix, percentEncoded, QUIET, words } from './fuzzer.ts'

const CHANGES = {
  none: (given: string) => given,
  quoted: (given: string) => `"${given}"`,
  encoded: percentEncoded,
  upper: (given: string) => given.toUpperCase(),
  lower: (given: string) => given.toLowerCase(),
  padded: (given: string) => `${given}=`,
  reversed: (given: string) => [...given].reverse().join(''),
  swapped: (given: string) => given.split('.').reverse().join('.'),
  flipped: (given: string) => (given.startsWith('A') ? 'B' : 'A') + given.slice(1),
  'last flipped': (given: string) => given.slice(0, -1) + (given.endsWith('A') ? 'B' : 'A'),
}

/** A cookie value that an attacker or a broken client could derive from the cookies it has. */
interface CookieValue {
  /** The signed-in browser's, that of an ended session, or one made under another secret. */
  of: 'session' | 'record' | 'login' | 'ended' | 'ended record' | 'foreign' | 'none'
  change: keyof typeof CHANGES
  /** How many characters are left; null: all. */
  cut: number | null
  before: string
  after: string
}

interface Cookies {
  route: 'session' | 'flux' | 'logout' | 'login'
  pairs: { name: string; value: CookieValue; separator: string }[]
  /** The pairs from here on are in a second `Cookie` line; null: there is one line. */
  secondLine: number | null
}

const around = choose([9, ''], [1, '\t', '\0', '\xff', ...words(' x . = " , % %3B session=x'), '; session='])
const value: fc.Arbitrary<CookieValue> = fc.record({
  of: choose([4, 'session'], [3, 'record', 'login', 'ended', 'ended record', 'foreign', 'none']),
  change: mix(
    [6, fc.constant('none' as const)],
    [3, fc.constantFrom(...(Object.keys(CHANGES) as (keyof typeof CHANGES)[]))],
  ),
  cut: mix<number | null>([9, fc.constant(null)], [1, fc.nat({ max: 90 })]),
  before: around,
  after: around,
})
const PLAIN: CookieValue = { of: 'session', change: 'none', cut: null, before: '', after: '' }
const ODD_NAMES = [
  ...words('record login-AAAAAAAAAAAAAAAA Session xsession "session" __Host-Http-session session%'),
  ...['session ', ' session', '\tsession', 'session\t', '\xa0session', '\xa0 session'],
  ...['', 'x', 's\xe9ssion', '__proto__', 'x=session'],
]
const cookies: fc.Arbitrary<Cookies> = fc.record({
  route: choose([2, 'session'], [2, 'flux'], [1, 'logout'], [1, 'login']),
  pairs: fc.array(
    fc.record({
      name: choose([4, 'session'], [3, ...ODD_NAMES]),
      value,
      separator: choose([6, '; '], [2, ';', ' ; ', ',', ', ', ';;', ';\t', ' ', '&', '=']),
    }),
    { maxLength: 4 },
  ),
  secondLine: fc.option(fc.nat({ max: 4 }), { freq: 5 }),
})

const EXAMPLE: Cookies = { route: 'session', pairs: [], secondLine: null }

/** The existing cookies by their origin. */
type Known = Readonly<Record<CookieValue['of'], string>>

function textOf({ of, change, cut, before, after }: CookieValue, known: Known): string {
  return before + CHANGES[change](known[of]).slice(0, cut ?? undefined) + after
}

function headerLines({ pairs, secondLine }: Cookies, known: Known): string[] {
  const join = (some: Cookies['pairs']): string =>
    some
      .map(({ name, value, separator }, at) => `${at > 0 ? separator : ''}${name}=${textOf(value, known)}`)
      .join('')
  return secondLine === null
    ? [join(pairs)]
    : [join(pairs.slice(0, secondLine)), join(pairs.slice(secondLine))]
}

/** The values of all cookies of this name. Names hold no white space, and a space alone follows a semicolon (RFC 6265). */
function valuesOf(name: string, lines: string[]): string[] {
  return lines
    .flatMap((line) => line.replace(/^[ \t]+|[ \t]+$/g, '').split(';'))
    .filter((pair) => pair.replace(/^ +/, '').startsWith(`${name}=`))
    .map((pair) => pair.slice(pair.indexOf('=') + 1).trim())
}

/** As most servers read a value: without quotes and percent-encoding. */
function decoded(value: string): string {
  try {
    return decodeURIComponent(value.replace(/^"(.*)"$/, '$1'))
  } catch {
    return value
  }
}

const ROUTES = {
  session: 'GET /auth/session',
  flux: 'GET /flux/a',
  logout: 'POST /auth/logout',
  login: 'GET /auth/login',
}

/** Odd, repeated, forged, cut or mixed cookies sign nobody in and nobody out. */
export const cookieHeaders = createFuzzer<Cookies>({
  name: 'cookies',
  input: cookies,
  // One that no parser takes, which short runs rarely reach.
  examples: [{ ...EXAMPLE, pairs: [{ name: 'session', value: { ...PLAIN, after: '\0' }, separator: ';' }] }],
  expects: ['in', 'out', 'refused by the parser', 'signed out', 'logout of nobody', 'sign-in begins'],
  async start(t) {
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox, QUIET)
    const ended = await signedIn()
    const [endedSession, endedRecord] = [value(ended, 'session'), value(ended, 'record')]
    await ended.fetch('/auth/logout', { method: 'POST' })
    const keyring = createKeyring([new Secret('another-secret-than-that-of-the-server')])
    const foreign = createSessionCookies({ keyring, publicUrl: 'http://localhost', secure: false })
    let browser = await signedIn()

    async function signedIn(): Promise<Browser> {
      const made = bff.browser()
      const answer = await signIn(made, sandbox)
      if (!made.cookies.has('session'))
        throw new Error(`the sign-in answered ${answer.status}: ${answer.text}`)
      return made
    }
    function value(from: Browser, name: string): string {
      return from.cookies.get(name)!.value
    }

    return async (given) => {
      const begun = await browser.navigate('/auth/login')
      const known: Known = {
        session: value(browser, 'session'),
        record: value(browser, 'record'),
        login: /=([^;]*)/.exec(begun.setCookies.at(-1)!)![1]!,
        ended: endedSession,
        'ended record': endedRecord,
        foreign: foreign.sign(foreign.newSessionId()),
        none: '',
      }
      const lines = headerLines(given, known)
      const answer = await send(ROUTES[given.route], lines)
      if (answer === null || answer.status === 400 || answer.status === 431) return 'refused by the parser'
      const values = valuesOf('session', lines)
      const isOwn = values.length === 1 && values[0] === known.session
      const isPlain =
        lines.length === 1 && /^[\x20-\x7e]*$/.test(lines[0]!) && !/session[ "%]/.test(lines[0]!)
      switch (given.route) {
        case 'session':
        case 'flux': {
          const isIn = answer.status === 200 && !answer.body.startsWith('{"authenticated":false')
          if (!isIn && answer.status !== (given.route === 'flux' ? 401 : 200))
            throw new Error(`status ${answer.status}`)
          if (isIn && !isOwn) throw new Error(`${JSON.stringify(lines)} gets in`)
          if (!isIn && isOwn && isPlain) throw new Error(`${JSON.stringify(lines)} is kept out`)
          for (const line of answer.headers.get('set-cookie') ?? []) {
            if (!/^(session|record)=; Max-Age=0;/.test(line)) throw new Error(`it sets ${line}`)
          }
          return isIn ? 'in' : 'out'
        }
        case 'login': {
          if (answer.status !== 303) throw new Error(`status ${answer.status}`)
          const set = answer.headers.get('set-cookie') ?? []
          if (!set.every((line) => line.startsWith('login-'))) throw new Error(`it sets ${set}`)
          return 'sign-in begins'
        }
        case 'logout': {
          // A navigation, as of a form, goes to the start.
          if (answer.status !== 204 && answer.status !== 303) throw new Error(`status ${answer.status}`)
          const lives = (await browser.fetch('/auth/session')).json().authenticated === true
          const mayEnd = isOwn || valuesOf('record', lines).some((text) => decoded(text) === known.record)
          // Before the report: smaller inputs would fail without a session.
          if (!lives) browser = await signedIn()
          if (!lives && !mayEnd) throw new Error(`${JSON.stringify(lines)} signs another browser out`)
          return lives ? 'logout of nobody' : 'signed out'
        }
      }
    }

    /** null: not one answer, because the bytes are no request. */
    async function send(start: string, lines: string[]): Promise<WireAnswer | null> {
      const fields = [
        `Host: ${new URL(bff.publicUrl).host}`,
        'Sec-Fetch-Site: same-origin',
        'Sec-Fetch-Mode: navigate',
        'Connection: close',
        'Content-Length: 0',
        ...lines.map((line) => `Cookie: ${line}`),
      ]
      const bytes = Buffer.from(`${start} HTTP/1.1\r\n${fields.join('\r\n')}\r\n\r\n`, 'latin1')
      const { answers, rest } = await speak(portOf(bff), bytes)
      if (answers.length > 1 || rest !== '') throw new Error(`more than one answer: ${rest}`)
      return answers[0] ?? null
    }
  },
})
