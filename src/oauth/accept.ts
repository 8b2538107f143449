import { Secret } from '../secret.ts'
import { lifeSeconds } from './tidy.ts'
import type { GrantedTokens, TokenOutcome } from './token-response.ts'

/** What an answer with tokens holds, whichever way it came. */
export interface TokenAnswer {
  access_token: string
  /** Bearer where it is absent. */
  token_type?: string | undefined
  refresh_token?: string | undefined
  /** Seconds. */
  expires_in?: number | undefined
  scope?: string | undefined
}

/**
 * The tokens of an answer to a request of `requestedAt` (epoch milliseconds). An access token that could
 * not appear in a header (RFC 6750 section 2.1), or that is no bearer token, makes the answer unreadable.
 */
export function acceptTokens(
  answer: TokenAnswer,
  requestedAt: number,
): Extract<TokenOutcome, { kind: 'granted' | 'in_doubt' }> {
  if (!/^[\x21-\x7e]+$/.test(answer.access_token)) {
    return {
      kind: 'in_doubt',
      reason: 'the access token holds characters outside visible ASCII',
      timedOut: false,
    }
  }
  // openid-client takes DPoP tokens too, which nobody may send as a bearer token.
  if (!isBearer(answer.token_type)) {
    return { kind: 'in_doubt', reason: 'the access token is no bearer token', timedOut: false }
  }
  const seconds = answer.expires_in ?? 0
  return {
    kind: 'granted',
    tokens: {
      accessToken: new Secret(answer.access_token),
      refreshToken: answer.refresh_token === undefined ? null : new Secret(answer.refresh_token),
      lifeSeconds: seconds,
      expiresAt: requestedAt + seconds * 1_000,
      scope: answer.scope ?? null,
    },
  }
}

/** Members of the fragment of a token flow's answer, as the browser read them (RFC 6749 section 4.2.2). */
export interface FragmentAnswer {
  access_token?: string
  token_type?: string
  expires_in?: unknown
  scope?: string
}

/**
 * The token of a token flow's answer that came at `receivedAt` (epoch milliseconds); null where it holds
 * none that can be used. This flow gives no refresh token (service document, section 5.4).
 */
export function acceptFragment(members: FragmentAnswer, receivedAt: number): GrantedTokens | null {
  const { access_token, token_type, expires_in, scope } = members
  if (access_token === undefined) return null
  const outcome = acceptTokens(
    { access_token, token_type, expires_in: lifeSeconds(expires_in), scope },
    receivedAt,
  )
  return outcome.kind === 'granted' ? outcome.tokens : null
}

function isBearer(tokenType: string | undefined): boolean {
  return tokenType === undefined || tokenType.toLowerCase() === 'bearer'
}
