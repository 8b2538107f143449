/**
 * All faults of the sandbox: differences from a well-behaved platform. `docs/sandbox.md`
 * lists them as a table. A fault applies to the whole sandbox and is set at run time, in process or over HTTP.
 */
export interface Faults {
  /** `state` at the redirect back: left out (the document does not name it), echoed, or replaced. */
  state: 'none' | 'echo' | 'wrong'
  /** Value of `iss` at the redirect back (RFC 9207), `{issuer}` for the own address; null: none is sent. */
  issuer: string | null
  /** Error code that the redirect back carries although the user accepted, for example `server_error`. */
  authorizeError: string | null
  /** Whether `redirect_uri` must equal the registered callback, instead of sharing its host name. */
  exactRedirect: boolean
  /** Whether the token endpoint compares `redirect_uri` with that of the authorize request. */
  redirectAtTokenEndpoint: 'check' | 'ignore'
  /** How the client authenticates. `any-for-codes`: Basic for all else. `post-for-tokens`: Basic for a revocation. */
  clientAuth: 'post' | 'basic' | 'any' | 'any-for-codes' | 'post-for-tokens'
  /** Whether any secret is accepted, as from a public client. */
  publicClient: boolean
  /** Whether an unknown refresh token is refused before the client's secret is looked at. */
  clientCheck: 'first' | 'last'
  /** Whether a `code_challenge` is honoured (RFC 7636), overlooked, or required. */
  pkce: 'honour' | 'ignore' | 'require'
  /** Whether the scope `openid` needs a `nonce`. */
  nonce: 'optional' | 'required'
  /**
   * What `prompt=none` leads to: the sign-in page, `login_required` at the callback, or at whatever callback was named.
   * `check`: `login_required` only once the request was found good.
   */
  promptNone: 'page' | 'refuse' | 'refuse-anywhere' | 'check'
  /** A code that was used already: ends its tokens (RFC 6749 section 4.1.2), or is merely refused. */
  codeReuse: 'revoke' | 'refuse'
  /** True lifetime, in seconds, of access tokens that are issued from now on. */
  tokenLifeSeconds: number
  /** `expires_in` of the token response: the true lifetime, omitted, or any JSON value. */
  expiresIn: 'truth' | 'absent' | { value: unknown }
  /**
   * No `refresh_token` in the token response; at a refresh the presented one stays good. `at-refresh`: only there.
   * `last-use`: only there, and the presented one is used up.
   */
  omitRefreshToken: boolean | 'at-refresh' | 'last-use'
  /** The response to a refresh has the presented refresh token, which stays good. */
  sameRefreshToken: boolean
  /**
   * A refresh token that was used already: ends the whole authorization and its access tokens
   * (RFC 9700 section 4.14.2), is merely refused, or is accepted once more. `until-first-use`: accepted until the
   * access token that came for it is used, which ends it and its own access token.
   */
  refreshReuse: 'revoke' | 'refuse' | 'allow' | 'until-first-use'
  /** Seconds for which a used refresh token is granted again, whatever `refreshReuse` says. */
  refreshGraceSeconds: number
  /** What it is granted then: other tokens, or those of its first use. */
  graceTokens: 'new' | 'same'
  /** Life of a refresh token in seconds, from its issue; null: it does not expire. */
  refreshLifeSeconds: number | null
  /** The member of the token response that says so; null: none. */
  refreshExpiresIn: 'refresh_expires_in' | 'refresh_token_expires_in' | null
  /** Seconds from the sign-in after which nothing is refreshed; null: no limit. */
  grantLifeSeconds: number | null
  /**
   * Whether a sign-in ends the tokens that the same user has from earlier ones (document section 5.6 can be read so),
   * or their refresh tokens alone.
   */
  oneGrantPerUser: boolean | 'refresh-token'
  /** Whether access tokens are refused once their authorization has ended; signed ones, which nobody asks about, are not. */
  endedAccess: 'refused' | 'valid'
  /**
   * What a revocation ends: an access token itself and a refresh token all (`cascade`), either all (`both`), the
   * two that were issued together (`pair`), itself alone (`each`), nothing although the answer is 200, or there is no
   * such endpoint.
   */
  revocation: 'cascade' | 'both' | 'pair' | 'each' | 'nothing' | 'absent'
  /** Whether the authorization server can reach its database. */
  database: 'there' | 'away'
  /** What UpdateSite does with a member that is absent: the document does not show it. */
  absentMembers: 'keep' | 'clear'
  /** Whether a refresh ends the access tokens that the authorization had before. */
  rotateAccess: boolean
  /** Last change to the token response: members to put in, then members to take out. */
  tokenAnswer: Patch
  /** The same for the response to a refresh, after `tokenAnswer`. */
  refreshAnswer: Patch
  /** Faults of the next responses, by endpoint. */
  tokenEndpoint: ResponseFault<Misbehaviour | OAuthMisbehaviour>
  revocationEndpoint: ResponseFault<Misbehaviour | OAuthMisbehaviour>
  resource: ResponseFault<Misbehaviour | ResourceMisbehaviour>
  /** How the resource server reports an invalid access token. */
  invalidToken: 'standard' | 'bare401' | 'json400' | 'challenge403' | 'servicestack' | 'code400'
  /** Header fields of every resource response; null removes one. */
  resourceHeaders: Record<string, string | string[] | null>
  /** Content coding of every resource response with a body, whatever `Accept-Encoding` says. */
  resourceEncoding: 'identity' | 'gzip' | 'deflate' | 'br'
}

interface Patch {
  set?: Record<string, unknown>
  remove?: readonly string[]
}

interface Which {
  /** Before anything was done, or once the work (a rotation, an update) is done. Default `before`. */
  point?: 'before' | 'after'
  /** Number of affected requests before it returns to `ok`. Default: all, until it is changed. */
  times?: number
  /** Only this grant type (token endpoint) or this operation, `GetFlux` or `UpdateSite` (resource). */
  only?: string
}

type ResponseFault<Mode> = { mode: 'ok' } | (Which & Mode)

export type Misbehaviour =
  /** This status; a plain text body unless one is given. */
  | { mode: 'status'; status: number; headers?: Record<string, string>; body?: string }
  /** 200 with a web page, as captive portals and maintenance pages send. */
  | { mode: 'html' }
  /** The correct response, this many milliseconds late. */
  | { mode: 'slow'; ms: number }
  /** No response, the connection stays open. */
  | { mode: 'hang' }
  /** No response, the connection is reset. */
  | { mode: 'drop' }
  /** A complete HTTP message that holds the first half of the right body. Always after the work. */
  | { mode: 'truncated' }
  /** The first half of the right body, then the connection closes. Always after the work. */
  | { mode: 'cut' }
  /** The first half of the right body, then nothing. Always after the work. */
  | { mode: 'stall' }

type OAuthMisbehaviour =
  /** 400 with this error of RFC 6749 section 5.2, default `invalid_grant`. */
  | { mode: 'refuse'; error?: string }
  /** 401 `invalid_client`. */
  | { mode: 'invalid_client' }

/** Every access token counts as invalid, reported in the shape of `invalidToken`. */
export type ResourceMisbehaviour = { mode: 'invalid-token' }

/** The fault of one request. */
export type TakenFault = ResponseFault<Misbehaviour | OAuthMisbehaviour | ResourceMisbehaviour>

/** The endpoints that a `ResponseFault` can affect, with their switches. */
const SWITCHES = {
  token: 'tokenEndpoint',
  revoke: 'revocationEndpoint',
  resource: 'resource',
} as const

/** An endpoint that gates can hold and faults can affect. */
export type Endpoint = keyof typeof SWITCHES

export const ENDPOINTS = Object.keys(SWITCHES)

export type FaultSwitches = ReturnType<typeof createFaults>

/** The switches of one sandbox, with `initial` as their first values. */
export function createFaults(initial: Faults) {
  let current = { ...initial }

  return {
    /** The current switches. */
    current(): Readonly<Faults> {
      return current
    },

    /** Changes the named switches. Each value replaces the former one completely. */
    set(change: Partial<Faults>): void {
      current = { ...current, ...change }
    },

    reset(): void {
      current = { ...initial }
    },

    /** The fault for the current request. Uses up one of its `times`. */
    take(endpoint: Endpoint, kind: string | null): TakenFault {
      const fault: TakenFault = current[SWITCHES[endpoint]]
      if (fault.mode === 'ok') return fault
      if (fault.only !== undefined && fault.only !== kind) return { mode: 'ok' }
      if (fault.times !== undefined) {
        const left = fault.times - 1
        current = { ...current, [SWITCHES[endpoint]]: left > 0 ? { ...fault, times: left } : { mode: 'ok' } }
      }
      return fault
    },
  }
}

/** The platform as the document describes it. */
export function noFaults(tokenLifeSeconds: number): Faults {
  return {
    state: 'none',
    issuer: null,
    authorizeError: null,
    exactRedirect: false,
    redirectAtTokenEndpoint: 'check',
    clientAuth: 'post',
    publicClient: false,
    clientCheck: 'first',
    pkce: 'honour',
    nonce: 'optional',
    promptNone: 'page',
    codeReuse: 'revoke',
    tokenLifeSeconds,
    expiresIn: 'truth',
    omitRefreshToken: false,
    sameRefreshToken: false,
    refreshReuse: 'revoke',
    refreshGraceSeconds: 0,
    graceTokens: 'new',
    refreshLifeSeconds: null,
    refreshExpiresIn: null,
    grantLifeSeconds: null,
    oneGrantPerUser: false,
    endedAccess: 'refused',
    revocation: 'cascade',
    database: 'there',
    absentMembers: 'keep',
    rotateAccess: false,
    tokenAnswer: {},
    refreshAnswer: {},
    tokenEndpoint: { mode: 'ok' },
    revocationEndpoint: { mode: 'ok' },
    resource: { mode: 'ok' },
    invalidToken: 'standard',
    resourceHeaders: {},
    resourceEncoding: 'identity',
  }
}
