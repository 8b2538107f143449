import { randomUUID } from 'node:crypto'
import { SYSTEM_CLOCK } from '../src/clock.ts'
import type { Config } from '../src/config/config.ts'
import { createAuthorizationClient } from '../src/oauth/client.ts'
import { redirectUriOf } from '../src/oauth/redirect-uri.ts'
import type { ClientCheck } from './check-client.ts'
import { get, type Response, unreachable, withSlash } from './http.ts'
import { inAscii } from './in-ascii.ts'
import { objectionIn } from './objection.ts'
import { type Finding, fault, ok, warning } from './report.ts'

const CHECK = 'sign-in page'
const PAGE_VARIABLES = 'AUTH_URL (or OAUTH_AUTHORIZE_URL)'
const MOST_REDIRECTS = 5

/** Where an authorization request has led, without a user. */
type Led =
  | { readonly kind: 'failed'; readonly reason: string }
  /** To the same address with a slash at its end, first of all. */
  | { readonly kind: 'slash' }
  /** To the callback, with these parameters. */
  | { readonly kind: 'back'; readonly params: URLSearchParams }
  /** To a page of the authorization server, or away from it. `hops`: redirects before. */
  | { readonly kind: 'page'; readonly path: string; readonly response: Response; readonly hops: number }

/** The findings, and by how many milliseconds this clock is ahead of the server's; null when unknown. */
interface SignInCheck {
  readonly findings: readonly Finding[]
  readonly clockAheadMs: number | null
  /** Whether the server answered at all. */
  readonly isReached: boolean
}

/**
 * Asks for the page that users sign in on, with this client and this callback. Null where no flow needs one. `client`: a
 * server that does not take the client elsewhere, since it cannot look it up, shows an error here whatever the callback.
 */
export async function checkSignInPage(
  config: Config,
  client: Promise<Pick<ClientCheck, 'isAccepted'>>,
): Promise<SignInCheck | null> {
  const { oauth, egress } = config
  const responseType = oauth.flows.has('code') ? 'code' : 'token'
  if (!oauth.flows.has(responseType)) return null
  const server = createAuthorizationClient({ oauth, egress, concurrency: 1, clock: SYSTEM_CLOCK })
  const nonce = randomUUID()
  const redirectUri = redirectUriOf(config, nonce)
  const verifier = oauth.pkce && responseType === 'code' ? `${nonce}${nonce}` : null
  let date: number | null = null

  /** Follows redirects that stay on the authorization server, with its cookies as a browser would. */
  async function lead(changes: Record<string, string>): Promise<Led> {
    const start = new URL(server.authorizeUrl({ responseType, redirectUri, state: nonce, verifier }))
    for (const [name, value] of Object.entries(changes)) start.searchParams.set(name, value)
    let url = start.href
    const cookies = new Map<string, string>()
    for (let hops = 0; ; hops += 1) {
      const cookie = [...cookies.values()].join('; ')
      const response = await get(url, 'text/html', egress, [], cookie)
      if (typeof response === 'string') return { kind: 'failed', reason: response }
      for (const line of response.setCookies) cookies.set(line.split('=')[0]!, line.split(';')[0]!)
      date ??= response.date
      const { status, location } = response
      const isRedirect = status >= 300 && status < 400 && location !== null && URL.canParse(location, url)
      const next = isRedirect ? new URL(location, url) : null
      if (next?.href.startsWith(redirectUri))
        return {
          kind: 'back',
          params: next.search === '' ? new URLSearchParams(next.hash.slice(1)) : next.searchParams,
        }
      if (hops === 0 && next?.origin === start.origin && next.pathname === `${start.pathname}/`)
        return { kind: 'slash' }
      if (next === null || next.origin !== start.origin || hops === MOST_REDIRECTS)
        return { kind: 'page', path: new URL(url).pathname, response, hops }
      url = next.href
    }
  }

  try {
    const led = await lead({})
    const isError = led.kind === 'page' && led.response.status >= 400
    const first = judge(led, config, { isClientAccepted: !isError || (await client).isAccepted })
    const isGood = first.verdict === 'ok'
    // An answer at our callback has proven both, unless another callback gets the same one.
    const unknownScope = isGood ? await lead({ scope: `doctor-${nonce}` }) : null
    const isBack = unknownScope?.kind === 'back'
    const silent = isGood ? await lead({ prompt: 'none' }) : null
    const proven =
      isBack ||
      (silent?.kind === 'back' &&
        (await lead({ prompt: 'none', redirect_uri: `${redirectUri}/doctor` })).kind !== 'back')
    const issuer = silent !== null && oauth.issuer !== null ? [judgeIssuer(silent, oauth)] : []
    const objection = silent?.kind === 'back' ? judgeSilent(silent.params, oauth) : null
    return {
      findings: [objection ?? (proven ? PROVEN : first), ...issuer],
      clockAheadMs: aheadOf(date),
      isReached: led.kind !== 'failed',
    }
  } finally {
    await server.close()
  }
}

const NOT_LOOKED_AT = warning(
  CHECK,
  'shows an error, which proves nothing until the fault of client is repaired: the server may not know the client now',
)
const PROVEN = ok(CHECK, 'the server accepts this client and callback')

/** `Date` has whole seconds, so its middle is half a second later. */
export function aheadOf(date: number | null): number | null {
  return date === null ? null : Date.now() - date - 500
}

function judge(led: Led, config: Config, { isClientAccepted }: { isClientAccepted: boolean }): Finding {
  const { oauth } = config
  if (led.kind === 'failed') return fault(CHECK, unreachable('sign-in page', led.reason, PAGE_VARIABLES))
  if (led.kind === 'slash')
    return fault(
      CHECK,
      'the server redirects to the same address with a slash at its end',
      `OAUTH_AUTHORIZE_URL=${withSlash(oauth.authorizeUrl)}`,
    )
  if (led.kind === 'back') {
    const objection = objectionIn(led.params, oauth)
    if (objection === null) return ok(CHECK, 'the server sends the browser back at once')
    const { words, remedy, setting } = objection
    return fault(CHECK, `the authorization server refuses the request (${words}): ${remedy}`, setting)
  }
  const { path, response, hops } = led
  const { status } = response
  if (status < 400) {
    const where = hops > 0 || status >= 300 ? 'redirects to a page' : 'shows a page'
    return ok(CHECK, `${where} to sign in on: callback and scope are checked later, so they are not proven`)
  }
  if (hops === 0 && (status === 404 || status === 405))
    return fault(CHECK, `there is no sign-in page (status ${status}): check ${PAGE_VARIABLES}`)
  if (status === 404)
    return fault(
      CHECK,
      `the server redirects to ${inAscii(path).slice(0, 200)}, where it has no page (status 404), so no user can sign in: ask the platform`,
    )
  if (hops === 0 && status >= 500)
    return fault(CHECK, `the sign-in page fails (status ${status}): ask the platform`)
  if (!isClientAccepted) return NOT_LOOKED_AT
  const fixed = oauth.redirect === 'fixed' ? '' : '; if they are right, set OAUTH_REDIRECT=fixed'
  const registered =
    oauth.redirect === 'fixed'
      ? `${redirectUriOf(config, '')} must be registered to the letter`
      : `the registered callback must be on the host of PUBLIC_URL, as ${config.publicUrl} is`
  return fault(
    CHECK,
    `the authorization server refuses this client or callback (status ${status}): ${registered}; check PUBLIC_URL and CLIENT_ID${fixed}`,
    oauth.redirect === 'fixed' ? null : 'OAUTH_REDIRECT=fixed',
  )
}

/** What `prompt=none` brings to light at a server that looks at the request only after the user has signed in. */
function judgeSilent(params: URLSearchParams, oauth: Config['oauth']): Finding | null {
  const objection = objectionIn(params, oauth)
  if (objection === null || !objection.isOfTheRequest) return null
  const { words, remedy, setting } = objection
  // It objects to prompt=none, which no sign-in has.
  if (/\bprompt\b/i.test(words)) return null
  const message = `the server refuses the request when nobody signs in (${words}), so a sign-in may end with that error: ${remedy}`
  return { ...warning(CHECK, message), setting }
}

/** Holds `OAUTH_ISSUER` against an `iss` that comes without a sign-in (RFC 9207). */
function judgeIssuer(led: Led, { issuer }: Config['oauth']): Finding {
  const check = 'issuer'
  if (led.kind !== 'back') return ok(check, 'not seen without a sign-in: run this with --live')
  const iss = led.params.get('iss')
  // Some servers send it with a code alone.
  if (iss === null)
    return warning(
      check,
      'no iss comes back without a sign-in: unless one comes with it, which --live sees, OAUTH_ISSUER checks nothing',
    )
  if (iss === issuer) return ok(check, 'iss is that of OAUTH_ISSUER')
  const shown = inAscii(iss).slice(0, 200)
  return fault(
    check,
    `iss is ${shown}, not that of OAUTH_ISSUER: every sign-in is refused`,
    /^[\x21-\x7e]{1,200}$/.test(iss) ? `OAUTH_ISSUER=${iss}` : null,
  )
}
