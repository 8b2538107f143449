import fc from 'fast-check'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import type { Answer } from '../../test/helpers/browser.ts'
import { type Bff, decide, startBff, startSandbox } from '../../test/helpers/system.ts'
import { choose, createFuzzer, percentEncoded, QUIET, words } from './fuzzer.ts'

const ISSUER = 'https://issuer.example'
const TOKEN = 'access-token-of-the-fragment'

/** A value of this sign-in, of another browser's sign-in, or an odd one. */
type Value = 'own' | 'other' | 'empty' | 'cut' | 'longer' | 'odd' | 'issuer' | 'access_denied'

interface Callback {
  redirect: 'per-login' | 'fixed'
  /** Whether the server checks the issuer. */
  issuer: boolean
  /** The flow with which the sign-in began. */
  flow: 'code' | 'token'
  /** In the query of the address, or in the fragment as the page posts it. */
  how: 'query' | 'fragment'
  parameters: { name: string; value: Value; encoded: boolean }[]
  /** The last part of the address; `none` leaves it out. */
  nonce: 'own' | 'other' | 'cut' | 'odd' | 'none'
  cookie: 'own' | 'other' | 'both' | 'forged' | 'renamed' | 'none'
}

const mostlyOwn = choose<Value>([6, 'own'], [2, 'other', 'empty', 'cut', 'longer', 'odd'])
const NAMES = words(
  'code error state iss access_token token_type expires_in Code code[] x error_description __proto__',
)

const callback: fc.Arbitrary<Callback> = fc
  .record({
    redirect: choose([1, 'per-login', 'fixed']),
    issuer: fc.boolean(),
    flow: choose([2, 'code'], [1, 'token']),
    how: choose([2, 'query'], [1, 'fragment']),
    nonce: choose([5, 'own'], [1, 'other', 'cut', 'odd', 'none']),
    cookie: choose([5, 'own'], [2, 'other', 'both', 'forged', 'renamed', 'none']),
    // Most responses are nearly right, with additions that a server rarely expects.
    right: choose([2, true], [1, false]),
    main: mostlyOwn,
    state: mostlyOwn,
    extra: fc.array(
      fc.record({
        name: fc.constantFrom(...NAMES),
        value: choose<Value>([1, 'own', 'other', 'empty', 'cut', 'longer', 'odd', 'issuer', 'access_denied']),
        encoded: fc.boolean(),
      }),
      { maxLength: 3 },
    ),
  })
  .map(({ right, main, state, extra, ...rest }) => {
    const name = rest.flow === 'code' ? 'code' : 'access_token'
    const both = [
      { name, value: main, encoded: false },
      { name: 'state', value: state, encoded: false },
    ]
    return { ...rest, parameters: right ? [...both, ...extra] : extra }
  })

/** A sign-in that a browser has begun. */
interface Begun {
  nonce: string
  cookieName: string
  cookieValue: string
  code: string
}

async function begin(bff: Bff, sandbox: Sandbox, flow: 'code' | 'token'): Promise<Begun> {
  const start = await bff.browser().navigate(`/auth/login?returnTo=/app&flow=${flow}`)
  const address = String(start.headers.location)
  const [, cookieName = '', cookieValue = ''] = /^([^=]+)=([^;]*)/.exec(start.setCookies.at(-1)!)!
  const nonce = new URL(address).searchParams.get('state')!
  const back = flow === 'code' ? new URL(await decide(sandbox, address)) : null
  return { nonce, cookieName, cookieValue, code: back?.searchParams.get('code') ?? '' }
}

function textOf(name: string, value: Value, own: Begun, other: Begun): string {
  const of = ({ nonce, code }: Begun): string => {
    const known = { state: nonce, code, access_token: TOKEN, token_type: 'bearer', expires_in: '60' }
    return Object.entries(known).find(([each]) => each === name)?.[1] ?? 'x'
  }
  return {
    own: name === 'iss' ? ISSUER : of(own),
    other: of(other),
    empty: '',
    cut: of(own).slice(0, -1),
    longer: `${of(own)}x`,
    odd: '\r\n\0é"<\u202e',
    issuer: ISSUER,
    access_denied: 'access_denied',
  }[value]
}

function cookieHeader(cookie: Callback['cookie'], own: Begun, other: Begun): string {
  const pair = ({ cookieName, cookieValue }: Begun): string => `${cookieName}=${cookieValue}`
  return {
    own: pair(own),
    other: pair(other),
    both: `${pair(other)}; ${pair(own)}`,
    forged: `${own.cookieName}=${own.cookieValue.slice(0, -4)}AAAA`,
    // The sealed value of another sign-in under the name of this one.
    renamed: `${own.cookieName}=${other.cookieValue}`,
    none: 'x=1',
  }[cookie]
}

/** The allowed effect of a callback: whether a code is redeemed, and whether a session begins. */
function expected(
  given: Callback,
  members: [string, string][],
  begun: { own: Begun; other: Begun },
  nonce: string,
): { redeems: boolean; signsIn: boolean } {
  const no = { redeems: false, signsIn: false }
  const names = members.map(([name]) => name)
  const isRepeated = new Set(names).size !== names.length
  const value = new Map(members)
  const state = value.get('state')
  const iss = value.get('iss')
  // A browser may have begun both.
  const which = (['own', 'other'] as const).find((name) => begun[name].nonce === nonce)
  const isOfThisBrowser = which !== undefined && (given.cookie === which || given.cookie === 'both')
  const isAddressed =
    isOfThisBrowser &&
    (state === undefined || state === nonce) &&
    (given.redirect === 'per-login' || state === nonce) &&
    (!given.issuer || iss === undefined || iss === ISSUER)
  if (!isAddressed) return no
  if (given.how === 'query') {
    const code = value.get('code')
    if (given.flow !== 'code' || isRepeated || !code || value.get('error')) return no
    return { redeems: true, signsIn: code === begun[which].code }
  }
  const token = value.get('access_token')
  const type = value.get('token_type')
  const life = value.get('expires_in')
  const signsIn =
    given.flow === 'token' &&
    !value.get('error') &&
    // No parser of ours accepts it.
    !value.has('__proto__') &&
    token !== undefined &&
    /^[\x21-\x7e]+$/.test(token) &&
    (type === undefined || type === 'bearer') &&
    (life === undefined || Number(life) > 0)
  return { redeems: false, signsIn }
}

const EXAMPLE: Callback = {
  ...{ redirect: 'per-login', issuer: false, flow: 'code', how: 'query' },
  ...{ parameters: [], nonce: 'own', cookie: 'own' },
}

/** For any authorization response a session begins only in the browser that began the sign-in, and once. */
export const callbacks = createFuzzer<Callback>({
  name: 'callback',
  input: callback,
  // One for each expected outcome, so that short runs reach them all.
  examples: [
    { ...EXAMPLE, parameters: [{ name: 'code', value: 'own', encoded: false }] },
    { ...EXAMPLE, parameters: [{ name: 'code', value: 'longer', encoded: false }] },
    { ...EXAMPLE, parameters: [{ name: 'error', value: 'access_denied', encoded: false }] },
    { ...EXAMPLE, flow: 'token' },
    { ...EXAMPLE, how: 'fragment' },
  ],
  expects: ['signed in', 'code refused', '400', '303', 'page'],
  async start(t) {
    const sandbox = await startSandbox(t)
    const servers = new Map<string, Bff>()
    for (const redirect of ['per-login', 'fixed'] as const) {
      for (const issuer of [true, false]) {
        const env = { ...QUIET, OAUTH_FLOWS: 'code,token', OAUTH_REDIRECT: redirect }
        const bff = await startBff(t, sandbox, issuer ? { ...env, OAUTH_ISSUER: ISSUER } : env)
        servers.set(`${redirect} ${issuer}`, bff)
      }
    }

    const tokenRequests = () => sandbox.journal.entries({ endpoint: 'token' }).length
    const beginsSession = ({ setCookies }: Answer) => setCookies.some((line) => /^session=[^;]/.test(line))
    return async (given) => {
      const bff = servers.get(`${given.redirect} ${given.issuer}`)!
      const own = await begin(bff, sandbox, given.flow)
      const other = await begin(bff, sandbox, given.flow)
      const members = given.parameters.map(
        ({ name, value }) => [name, textOf(name, value, own, other)] as [string, string],
      )
      const nonces = { own: own.nonce, other: other.nonce, cut: own.nonce.slice(1), odd: 'a%2Fb', none: '' }
      const nonce = nonces[given.nonce]
      const isFragment = given.how === 'fragment'
      const inPath = given.redirect === 'per-login' || isFragment
      const state = new Map(members).get('state') ?? ''
      const cookie = cookieHeader(given.cookie, own, other)
      const path = `/auth/callback${inPath && nonce !== '' ? `/${nonce}` : ''}`

      sandbox.journal.clear()
      const answer = await send()
      if (answer.status >= 500) throw new Error(`status ${answer.status}`)
      const { redeems, signsIn } = expected(given, members, { own, other }, inPath ? nonce : state)
      const redeemed = tokenRequests()
      if (redeemed !== (redeems ? 1 : 0)) throw new Error(`${redeemed} token requests`)
      const isIn = beginsSession(answer)
      if (isIn !== signsIn)
        throw new Error(`signed in: ${isIn}, status ${answer.status}: ${answer.text.slice(0, 300)}`)
      const location = answer.headers.location
      if (location !== undefined && !/^\/(app)?(\?login_error=[a-z_]+)?#_$/.test(String(location))) {
        throw new Error(`it leads to ${location}`)
      }
      if (answer.text.includes('<script>') && /access_denied|\u202e/.test(answer.text))
        throw new Error('a value in a page')
      if (isIn || redeems) {
        if (beginsSession(await send())) throw new Error('signed in a second time')
        if (tokenRequests() > redeemed) throw new Error('redeemed a second time')
      }
      if (isIn) return 'signed in'
      if (redeems) return 'code refused'
      return answer.status === 200 ? 'page' : String(answer.status)

      function send(): Promise<Answer> {
        if (isFragment) {
          // A repeated member counts once, as in the browser's own parsing.
          const body = JSON.stringify(Object.fromEntries(members))
          const headers = { cookie, 'content-type': 'application/json' }
          return bff.browser().fetch(path, { method: 'POST', headers, body })
        }
        const query = members.map((pair, at) =>
          pair.map(given.parameters[at]!.encoded ? percentEncoded : encodeURIComponent).join('='),
        )
        const target = `${path}?${query.join('&')}`
        return bff.browser().navigate(target, { from: 'cross-site', headers: { cookie } })
      }
    }
  },
})
