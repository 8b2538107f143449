import type { Faults } from './faults.ts'

/** What a client meets, named by what it did. A measured server has its own answer to each. */
export type AnswerName =
  | 'refresh: unknown'
  | 'refresh: used'
  | 'refresh: expired'
  | 'refresh: revoked'
  | 'refresh: withdrawn'
  | 'refresh: replayed'
  | 'refresh: superseded'
  | 'refresh: account deleted'
  | 'code: unknown'
  | 'code: used'
  | 'code: verifier'
  | 'client: wrong'
  | 'client: wrong, with a refresh token'
  | 'client: wrong, at the revocation'
  | 'client: wrong method'
  | 'grant type: unknown'
  | 'database away'
  | 'revocation: done'
  | 'revocation: unknown'
  | 'revocation: database away'
  | 'authorize: client'
  | 'authorize: database away'
  | 'authorize: callback'
  | 'authorize: scope'
  | 'authorize: no challenge'
  | 'authorize: no nonce'
  | 'authorize: refused by the user'
  | 'token: none'
  | 'token: unknown'
  | 'token: expired'
  | 'token: ended'

/** An answer to the letter; `{issuer}` in it is the server's own address. */
export interface RecordedResponse {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  /** An object is written as JSON. */
  readonly body?: string | object
}

/** Parameters of a redirect to the callback. */
interface RecordedRedirect {
  readonly back: Readonly<Record<string, string>>
}

export type RecordedAnswer = RecordedResponse | RecordedRedirect

/** The moment at which a sign-in is refused: the first request, the page that it redirects to, or once the user has signed in. */
export type Stage = 'request' | 'page' | 'sign-in'

/** An authorization server as it was measured: what its address, its words and its rules are. */
export interface Profile {
  /** Name and version of the software, and the day of the measurement. */
  readonly software: string
  readonly version: string
  readonly measuredOn: string
  /** What makes it special, in a line. */
  readonly special: string
  /** Its paths as they are documented, a slash at the end included; `revoke`: null where it has none. */
  readonly paths: {
    readonly base: string
    readonly authorize: string
    readonly token: string
    readonly revoke: string | null
    readonly endSession?: string
  }
  readonly signIn: {
    /** Whether the first request redirects to the sign-in page. */
    readonly redirects: boolean
    readonly refusesCallback: Stage
    readonly refusesScope: Stage
    /** Further parameters of each redirect to the callback. */
    readonly back?: Readonly<Record<string, string>>
  }
  readonly scopes: {
    readonly known: readonly string[]
    /** What becomes of a scope that is not registered. */
    readonly unknown: 'refuse' | 'drop' | 'accept'
    /** Where unknown scopes are dropped: whether a request of which nothing is left is refused. */
    readonly refusesNone?: boolean
    /** Without it the request is refused. */
    readonly required?: string
    /** Granted whatever was asked for. */
    readonly added?: readonly string[]
    /** A refresh token comes only with one of these. */
    readonly refresh?: readonly string[]
    /** A refresh token comes only where the request has this `prompt`. */
    readonly refreshPrompt?: string
  }
  /** Header fields of each response of the token endpoint and the revocation endpoint. */
  readonly tokenHeaders: Readonly<Record<string, string>>
  /** Header fields of each refusal of its resource guard. */
  readonly guardHeaders?: Readonly<Record<string, string>>
  /** Whether its responses have a `Date`. Default: they do. */
  readonly sendsDate?: boolean
  readonly answers: Partial<Record<AnswerName, RecordedAnswer>>
  /** Pages of the server that its redirects lead to. */
  readonly pages?: Readonly<Record<string, RecordedResponse>>
  /** What a refresh, a second presentation and a revocation end, and the rest of the state machine. */
  readonly faults: Partial<Faults>
  /** The environment of this product that worked, besides the addresses. */
  readonly env: Readonly<Record<string, string>>
  /** A setting of the server that keeps a session whose replica is killed during a refresh, where the default does not. */
  readonly kept?: {
    readonly setting: string
    readonly faults: Partial<Faults>
    readonly env: Readonly<Record<string, string>>
  }
}

/** The environment of this product for a server at `origin`. */
export function environmentFor(
  { paths: { base, authorize, token, revoke, endSession }, env }: Profile,
  origin: string,
): Record<string, string> {
  const authUrl = `${origin}${base}`
  return {
    AUTH_URL: authUrl,
    ...(authorize === `${base}/oauth/authorize` ? {} : { OAUTH_AUTHORIZE_URL: `${origin}${authorize}` }),
    ...(token === `${base}/oauth/token` ? {} : { OAUTH_TOKEN_URL: `${origin}${token}` }),
    ...(revoke === null ? {} : { OAUTH_REVOCATION_URL: `${origin}${revoke}` }),
    ...(endSession === undefined ? {} : { OAUTH_END_SESSION_URL: `${origin}${endSession}` }),
    ...Object.fromEntries(
      Object.entries(env).map(([name, value]) => [name, value.replaceAll('{issuer}', authUrl)]),
    ),
  }
}
