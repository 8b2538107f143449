import { createHash, randomBytes } from 'node:crypto'
import type { FastifyReply } from 'fastify'
import type { Config } from '../config/config.ts'
import type { RedirectFlow } from '../config/variables.ts'
import type { SessionCookies } from '../http/cookies.ts'
import type { Keyring } from '../keyring.ts'
import { redirectUriOf } from '../oauth/redirect-uri.ts'
import { PATHS } from '../paths.ts'

/** One sign-in, as the server must remember it until the browser comes back. */
export interface StartedSignIn {
  flow: RedirectFlow
  returnTo: string
  /** `redirect_uri` of the authorization request. */
  redirectUri: string
  /** PKCE verifier; null when PKCE is off, and in flows without a code. */
  verifier: string | null
}

/** How long a sign-in may take, since a sign-in page may wait as long; a nonce stays claimed as long. */
export const SIGN_IN_MS = 3_600_000
/** As many tabs as a browser window that is restored may have: each of them may begin a sign-in. */
const MAX_KEPT = 20
/** Many reverse proxies refuse a header line of 8 KB. Room is left for its name and for cookies that come later. */
const MAX_COOKIE_BYTES = 8_000
/** More `Set-Cookie` lines would make a response head that proxies refuse; later sign-ins drop the rest. */
const MAX_DROPPED = 10
/** Of one header: a few more than are kept. To open one takes a tenth of a response. */
const MOST_OPENED = 24

export interface LoginCookies {
  /** A new sign-in. Sets its cookie, and drops cookies that are too many or too old. */
  begin(
    reply: FastifyReply,
    cookieHeader: string | undefined,
    what: Pick<StartedSignIn, 'flow' | 'returnTo'>,
  ): Pick<StartedSignIn, 'redirectUri' | 'verifier'> & { nonce: string }
  /** The sign-in of this nonce, or null if this browser did not begin it or it is too old. */
  find(cookieHeader: string | undefined, nonce: string): StartedSignIn | null
  /** Whether this browser has begun any sign-in of this flow. */
  hasBegun(cookieHeader: string | undefined, flow: RedirectFlow): boolean
  /** Clears the cookie of a sign-in. */
  forget(reply: FastifyReply, nonce: string): void
}

/** Path where a sign-in can be started, or started again. */
export function loginUrl({ flow, returnTo }: Pick<StartedSignIn, 'flow' | 'returnTo'>): string {
  return `${PATHS.login}?returnTo=${encodeURIComponent(returnTo)}${flow === 'code' ? '' : `&flow=${flow}`}`
}

/** Content of a login cookie; its names are short, because the return address may be long. */
interface Sealed {
  /** Flow; absent in the code flow. */
  f?: RedirectFlow
  /** Return address. */
  r: string
  /** PKCE verifier. */
  v: string | null
  /** When the sign-in began, epoch milliseconds. */
  t: number
}

/**
 * Sign-ins under way, each in a sealed cookie of its own. Visitors who never come back cost this server nothing, and
 * parallel tabs do not disturb each other.
 */
export function createLoginCookies({
  keyring,
  cookies,
  publicUrl,
  oauth,
  now,
}: {
  keyring: Keyring
  cookies: SessionCookies
  publicUrl: string
  oauth: Pick<Config['oauth'], 'redirect' | 'pkce'>
  now: () => number
}): LoginCookies {
  const { loginCookiesIn, loginLength, setLogin } = cookies
  const idOf = (nonce: string): string => createHash('sha256').update(nonce).digest('base64url').slice(0, 16)

  function clear(reply: FastifyReply, id: string): void {
    setLogin(reply, { id, value: '', maxAgeSeconds: 0 })
  }

  function open({ id, value }: { id: string; value: string }): Sealed | null {
    const opened = keyring.open('login', value, id)
    if (opened === null) return null
    const sealed = JSON.parse(opened.text) as Sealed
    return now() - sealed.t < SIGN_IN_MS ? sealed : null
  }

  /** As many as may be opened, of this id if there is one: somebody may have made the header. */
  function openable(header: string | undefined, id?: string): { id: string; value: string }[] {
    const found: { id: string; value: string }[] = []
    for (const cookie of loginCookiesIn(header)) {
      if (found.length === MOST_OPENED) break
      if (id === undefined || cookie.id === id) found.push(cookie)
    }
    return found
  }

  /** Ids of the login cookies in a header that make too many with a new one of `newBytes`: broken ones and the oldest. */
  function superfluous(header = '', newBytes: number): string[] {
    const cookies = openable(header).map((cookie) => ({ ...cookie, startedAt: open(cookie)?.t ?? 0 }))
    cookies.sort((a, b) => b.startedAt - a.startedAt)
    const ofLogins = cookies.reduce((sum, cookie) => sum + loginLength(cookie), 0)
    let bytes = header.length - ofLogins + newBytes
    return cookies
      .filter((cookie, at) => {
        if (cookie.startedAt === 0 || at >= MAX_KEPT - 1) return true
        bytes += loginLength(cookie)
        return bytes > MAX_COOKIE_BYTES
      })
      .map(({ id }) => id)
  }

  return {
    begin(reply, header, { flow, returnTo }) {
      const nonce = randomBytes(32).toString('base64url')
      const verifier = oauth.pkce && flow === 'code' ? randomBytes(32).toString('base64url') : null
      const sealed: Sealed = { r: returnTo, v: verifier, t: now() }
      const plain = JSON.stringify(flow === 'code' ? sealed : { ...sealed, f: flow })
      const id = idOf(nonce)
      const value = keyring.seal('login', plain, id)
      for (const dropped of superfluous(header, loginLength({ id, value })).slice(0, MAX_DROPPED))
        clear(reply, dropped)
      setLogin(reply, { id, value, maxAgeSeconds: SIGN_IN_MS / 1_000 })
      return { nonce, redirectUri: redirectUriOf({ publicUrl, oauth }, nonce), verifier }
    },

    find(header, nonce) {
      for (const cookie of openable(header, idOf(nonce))) {
        const sealed = open(cookie)
        if (sealed === null) continue
        const { f: flow = 'code', r: returnTo, v: verifier } = sealed
        return { flow, returnTo, redirectUri: redirectUriOf({ publicUrl, oauth }, nonce), verifier }
      }
      return null
    },

    hasBegun(header, flow) {
      const begun = openable(header).map(open)
      return begun.some((sealed) => sealed !== null && (sealed.f ?? 'code') === flow)
    },

    forget: (reply, nonce) => clear(reply, idOf(nonce)),
  }
}
