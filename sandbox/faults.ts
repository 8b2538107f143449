/**
 * All faults of the sandbox: differences from a well-behaved platform. `docs/sandbox.md`
 * lists them as a table. A fault applies to the whole sandbox and is set at run time, in process or over HTTP.
 */
export interface Faults {
  /** `state` at the redirect back: left out (the document does not name it), echoed, or replaced. */
  state: 'none' | 'echo' | 'wrong'
  /** Value of `iss` at the redirect back (RFC 9207); null: none is sent. */
  issuer: string | null
  /** Error code that the redirect back carries although the user accepted, for example `server_error`. */
  authorizeError: string | null
  /** Whether `redirect_uri` must equal the registered callback, instead of sharing its host name. */
  exactRedirect: boolean
  /** Whether the token endpoint compares `redirect_uri` with that of the authorize request. */
  redirectAtTokenEndpoint: 'check' | 'ignore'
  /** Whether a `code_challenge` is honoured (RFC 7636) or overlooked. */
  pkce: 'honour' | 'ignore'
  /** True lifetime, in seconds, of access tokens that are issued from now on. */
  tokenLifeSeconds: number
  /** `expires_in` of the token response: the true lifetime, omitted, or any JSON value. */
  expiresIn: 'truth' | 'absent' | { value: unknown }
  /** No `refresh_token` in the token response; at a refresh the presented one stays good. */
  omitRefreshToken: boolean
  /** The response to a refresh has the presented refresh token, which stays good. */
  sameRefreshToken: boolean
  /**
   * A refresh token that was used already: ends the whole authorization and its access tokens
   * (RFC 9700 section 4.14.2), is merely refused, or is accepted once more.
   */
  refreshReuse: 'revoke' | 'refuse' | 'allow'
  /** Whether a sign-in ends the tokens that the same user has from earlier ones (document section 5.6 can be read so). */
  oneGrantPerUser: boolean
  /** What UpdateSite does with a member that is absent: the document does not show it. */
  absentMembers: 'keep' | 'clear'
  /** Whether a refresh ends the access tokens that the authorization had before. */
  rotateAccess: boolean
  /** Last change to the token response: members to put in, then members to take out. */
  tokenAnswer: { set?: Record<string, unknown>; remove?: readonly string[] }
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
    pkce: 'honour',
    tokenLifeSeconds,
    expiresIn: 'truth',
    omitRefreshToken: false,
    sameRefreshToken: false,
    refreshReuse: 'revoke',
    oneGrantPerUser: false,
    absentMembers: 'keep',
    rotateAccess: false,
    tokenAnswer: {},
    tokenEndpoint: { mode: 'ok' },
    revocationEndpoint: { mode: 'ok' },
    resource: { mode: 'ok' },
    invalidToken: 'standard',
    resourceHeaders: {},
    resourceEncoding: 'identity',
  }
}
