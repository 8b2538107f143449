import fc from 'fast-check'
import { isLocalPath, returnLocation } from '../../src/login/return-to.ts'
import { startBff, startSandbox } from '../../test/helpers/system.ts'
import { portOf } from '../../test/http/wire.ts'
import { createFuzzer, mix, QUIET, words } from './fuzzer.ts'
import { knownTricks, landsAt, requireLocal } from './return-tricks.ts'

const PUBLIC_URL = 'https://app.example'

const MARKS = [
  ...words('/ // \\ /\\ . .. /.. %2f %5c %2e %09 %0a %00 % %25 @ : ? # & ; = + ä [ ] | " <'),
  ...['\t', '\n', '\r', '\0', ' ', '\u3002', '\uff0f', '\u2044', '\ufe68', '\u200b', '\u202e', '\ufeff'],
  ...['\u00ad', '\u0130', '\ud800'],
]
const WORDS = words(
  'http: https: HTTP: javascript: data: evil.example app.example localhost auth AUTH flux site login %61uth %66lux a app x=1 login_error=x',
)
const pieces = fc.array(
  mix(
    [4, fc.constantFrom(...MARKS)],
    [3, fc.constantFrom(...WORDS)],
    [1, fc.string({ unit: 'binary', maxLength: 3 })],
  ),
  { maxLength: 8 },
)
const given = mix(
  [5, pieces.map((list) => `/${list.join('')}`)],
  [1, pieces.map((list) => list.join(''))],
  [1, fc.stringMatching(/^\/[a-z]{1,9}(\/[a-z]{1,9}){0,3}(\?[a-z]=[a-z0-9]{1,5})?$/)],
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
    const bff = await startBff(t, await startSandbox(t), QUIET)
    const port = portOf(bff)
    return async ({ given, overHttp }) => {
      const isTaken = isLocalPath(given, PUBLIC_URL)
      if (!isTaken) {
        const isPlain = /^\/[a-z]+(\/[a-z]+)*$/.test(given) && !/^\/(auth|flux|site|data)(\/|$)/.test(given)
        if (isPlain) throw new Error('a plain path is refused')
      } else {
        for (const loginError of [undefined, 'access_denied']) {
          requireLocal(returnLocation(given, loginError), PUBLIC_URL)
        }
      }
      if (!overHttp || /\p{Surrogate}/u.test(given)) return isTaken ? 'taken' : 'refused'
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
