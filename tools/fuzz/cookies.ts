import fc from 'fast-check'
import { createKeyring } from '../../src/keyring.ts'
import { Secret } from '../../src/secret.ts'
import { createSessionCookies } from '../../src/session/cookies.ts'
import type { Browser } from '../../test/helpers/browser.ts'
import { signIn, startBff, startSandbox } from '../../test/helpers/system.ts'
import { portOf, speak, type WireAnswer } from '../../test/http/wire.ts'
import { createFuzzer } from './fuzzer.ts'

/** A cookie value that an attacker or a broken client could derive from the cookies it has. */
interface CookieValue {
  /** The signed-in browser's, that of an ended session, or one made under another secret. */
  of: 'session' | 'record' | 'login' | 'ended' | 'ended record' | 'foreign' | 'none'
  change:
    | { kind: 'none' | 'quoted' | 'encoded' | 'upper' | 'lower' | 'padded' | 'reversed' | 'swapped' }
    | { kind: 'cut' | 'flip'; at: number }
    | { kind: 'before' | 'after'; text: string }
}

interface Cookies {
  route: 'session' | 'flux' | 'logout' | 'login'
  pairs: { name: string; value: CookieValue; separator: string }[]
  /** The pairs from here on are in a second `Cookie` line; null: there is one line. */
  secondLine: number | null
}

const text = fc.constantFrom(
  '',
  ' ',
  '\t',
  'x',
  '.',
  '=',
  '"',
  ',',
  '%',
  '%3B',
  '\xff',
  '\0',
  'session=x',
  '; session=',
)
const value: fc.Arbitrary<CookieValue> = fc.record({
  of: fc.oneof(
    { weight: 4, arbitrary: fc.constant('session' as const) },
    { weight: 3, arbitrary: fc.constantFrom('record', 'login', 'ended', 'ended record', 'foreign', 'none') },
  ),
  change: fc.oneof(
    { weight: 4, arbitrary: fc.constant({ kind: 'none' as const }) },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constantFrom('quoted', 'encoded', 'upper', 'lower', 'padded', 'reversed', 'swapped'),
      }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom('cut', 'flip'), at: fc.nat({ max: 90 }) }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom('before', 'after'), text }) },
  ),
})
const cookies: fc.Arbitrary<Cookies> = fc.record({
  route: fc.constantFrom('session', 'session', 'flux', 'flux', 'logout', 'login'),
  pairs: fc.array(
    fc.record({
      name: fc.oneof(
        { weight: 4, arbitrary: fc.constant('session') },
        {
          weight: 3,
          arbitrary: fc.constantFrom(
            'record',
            'login-AAAAAAAAAAAAAAAA',
            'Session',
            'xsession',
            'session ',
            ' session',
            '\tsession',
            'session\t',
            '\xa0session',
            '\xa0 session',
            '"session"',
            '__Host-Http-session',
            'session%',
            '',
            'x',
            's\xe9ssion',
            '__proto__',
            'x=session',
          ),
        },
      ),
      value,
      separator: fc.oneof(
        { weight: 6, arbitrary: fc.constant('; ') },
        { weight: 2, arbitrary: fc.constantFrom(';', ' ; ', ',', ', ', ';;', ';\t', ' ', '&', '=') },
      ),
    }),
    { maxLength: 4 },
  ),
  secondLine: fc.option(fc.nat({ max: 4 }), { freq: 5 }),
})

/** The existing cookies by their origin. */
type Known = Readonly<Record<CookieValue['of'], string>>

function textOf({ of, change }: CookieValue, known: Known): string {
  const given = known[of]
  switch (change.kind) {
    case 'none':
      return given
    case 'quoted':
      return `"${given}"`
    case 'encoded':
      return [...given].map((char) => `%${char.charCodeAt(0).toString(16).padStart(2, '0')}`).join('')
    case 'upper':
      return given.toUpperCase()
    case 'lower':
      return given.toLowerCase()
    case 'padded':
      return `${given}=`
    case 'reversed':
      return [...given].reverse().join('')
    case 'swapped':
      return given.split('.').reverse().join('.')
    case 'cut':
      return given.slice(0, change.at)
    case 'flip': {
      const at = change.at % Math.max(1, given.length)
      return given.slice(0, at) + (given[at] === 'A' ? 'B' : 'A') + given.slice(at + 1)
    }
    case 'before':
      return change.text + given
    case 'after':
      return given + change.text
  }
}

function headerLines({ pairs, secondLine }: Cookies, known: Known): string[] {
  const join = (some: Cookies['pairs']): string =>
    some
      .map(
        ({ name, value, separator }, at) =>
          `${name}=${textOf(value, known)}${at < some.length - 1 ? separator : ''}`,
      )
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
  examples: [],
  expects: ['in', 'out', 'refused by the parser', 'signed out', 'logout of nobody', 'sign-in begins'],
  async start(t) {
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox, {
      ACCESS_LOG: 'off',
      LOG_LEVEL: 'silent',
      LOGIN_RATE_PER_MINUTE: '0',
    })
    const ended = await signedIn()
    const old = { session: value(ended, 'session'), record: value(ended, 'record') }
    await ended.fetch('/auth/logout', { method: 'POST' })
    const foreign = createSessionCookies({
      keyring: createKeyring([new Secret('another-secret-than-that-of-the-server')]),
      publicUrl: 'http://localhost',
      secure: false,
    })
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
        ended: old.session,
        'ended record': old.record,
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
          if (answer.status !== 204) throw new Error(`status ${answer.status}`)
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
      const { answers, rest } = await speak(portOf(bff), bytes, 5_000)
      if (answers.length > 1 || rest !== '') throw new Error(`more than one answer: ${rest}`)
      return answers[0] ?? null
    }
  },
})
