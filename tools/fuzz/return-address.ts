import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { localPath, returnLocation } from '../../src/login/return-to.ts'
import { startBff, startSandbox } from '../../test/helpers/system.ts'
import { ask, field, portOf } from '../../test/http/wire.ts'
import { createFuzzer } from './fuzzer.ts'

const PUBLIC_URL = 'https://app.example'
const NAVIGATION = [
  ['Sec-Fetch-Mode', 'navigate'],
  ['Sec-Fetch-Site', 'none'],
] as const

/** Where the browser lands after the user declines; `location` is null where the sign-in does not begin. */
export async function landsAt(
  port: number,
  query: string,
): Promise<{ status: number; location: string | null }> {
  const start = await ask(port, { target: `/auth/login${query}`, headers: NAVIGATION })
  if (start.status !== 303) return { status: start.status, location: null }
  const redirectUri = new URL(field(start, 'location')!).searchParams.get('redirect_uri')!
  const cookie = field(start, 'set-cookie')!.split(';', 1)[0]!
  const back = await ask(port, {
    target: `${new URL(redirectUri).pathname}?error=access_denied`,
    headers: [...NAVIGATION, ['Cookie', cookie]],
  })
  return { status: back.status, location: field(back, 'location') ?? null }
}

/** Known tricks, as an attacker would put them into `returnTo` before encoding. */
export function knownTricks(): string[] {
  const text = readFileSync(new URL('../../test/fixtures/open-redirects.txt', import.meta.url), 'utf8')
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('# '))
    .map((line) => (line.startsWith('"') ? (JSON.parse(line) as string) : line))
}

/** Throws unless a browser that gets this `Location` stays at a page of the app. */
export function requireLocal(location: string, publicUrl: string): void {
  // A header has no other characters; each reader would interpret them in its own way.
  if (!/^\/[\x21-\x7e]*$/.test(location)) throw new Error(`not a plain path: ${JSON.stringify(location)}`)
  for (const base of [publicUrl, `${publicUrl}/auth/callback/nonce?code=x`]) {
    const { origin, pathname, username } = new URL(location, base)
    if (origin !== new URL(publicUrl).origin || username !== '')
      throw new Error(`leaves the site: ${location}`)
    for (const path of [pathname, decodeURIComponent(pathname)]) {
      if (/^[/\\]{2}/.test(path)) throw new Error(`another host after decoding: ${location}`)
      if (/^\/(auth|flux|site)(\/|$)/i.test(path)) throw new Error(`a route of this server: ${location}`)
    }
  }
}

const MARKS = [
  '/',
  '//',
  '\\',
  '/\\',
  '.',
  '..',
  '/..',
  '%2f',
  '%5c',
  '%2e',
  '%09',
  '%0a',
  '%00',
  '%',
  '%25',
  '\t',
  '\n',
  '\r',
  '\0',
  ' ',
  '@',
  ':',
  '?',
  '#',
  '&',
  ';',
  '=',
  '+',
  '\u3002',
  '\uff0f',
  '\u2044',
  '\ufe68',
  '\u200b',
  '\u202e',
  '\ufeff',
  '\u00ad',
  '\u0130',
  '\ud800',
  'ä',
  '[',
  ']',
  '|',
  '"',
  '<',
] as const
const WORDS = [
  'http:',
  'https:',
  'HTTP:',
  'javascript:',
  'data:',
  'evil.example',
  'app.example',
  'localhost',
  'auth',
  'AUTH',
  'flux',
  'site',
  'login',
  '%61uth',
  '%66lux',
  'a',
  'app',
  'x=1',
  'login_error=x',
] as const
const piece = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...MARKS) },
  { weight: 3, arbitrary: fc.constantFrom(...WORDS) },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 3 }) },
)
const given = fc.oneof(
  { weight: 5, arbitrary: fc.array(piece, { maxLength: 8 }).map((pieces) => `/${pieces.join('')}`) },
  { weight: 1, arbitrary: fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join('')) },
  { weight: 1, arbitrary: fc.stringMatching(/^\/[a-z]{1,9}(\/[a-z]{1,9}){0,3}(\?[a-z]=[a-z0-9]{1,5})?$/) },
)

/** The return address of a sign-in never leaves the origin and never names a route of this server. */
export const returnAddress = createFuzzer({
  name: 'return-address',
  // One input in a hundred goes over HTTP, which costs a hundred times as much.
  input: fc.record({
    given,
    overHttp: fc.integer({ min: 0, max: 99 }).map((number) => number === 0),
  }),
  examples: [
    ...knownTricks().map((trick) => ({ given: trick, overHttp: false })),
    // For the outcome that short runs rarely reach.
    { given: '/app', overHttp: true },
  ],
  expects: ['refused', 'taken', 'taken over HTTP'],
  async start(t) {
    const bff = await startBff(t, await startSandbox(t), {
      LOGIN_RATE_PER_MINUTE: '0',
      ACCESS_LOG: 'off',
      LOG_LEVEL: 'silent',
    })
    const port = portOf(bff)
    return async ({ given, overHttp }) => {
      const path = localPath(given, PUBLIC_URL)
      if (path === null) {
        const isPlain = /^\/[a-z]+(\/[a-z]+)*$/.test(given) && !/^\/(auth|flux|site)(\/|$)/.test(given)
        if (isPlain) throw new Error('a plain path is refused')
      } else {
        for (const loginError of [undefined, 'access_denied']) {
          requireLocal(returnLocation(path, loginError), PUBLIC_URL)
        }
        if (localPath(path, PUBLIC_URL) !== path)
          throw new Error(`judged differently the second time: ${path}`)
      }
      if (!overHttp || /\p{Surrogate}/u.test(given)) return path === null ? 'refused' : 'taken'
      const { status, location } = await landsAt(port, `?returnTo=${encodeURIComponent(given)}`)
      if (location === null) {
        if (status !== 400) throw new Error(`the status is ${status}`)
        return 'refused over HTTP'
      }
      requireLocal(location, bff.publicUrl)
      return 'taken over HTTP'
    }
  },
})
