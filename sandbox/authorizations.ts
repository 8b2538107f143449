import { randomBytes } from 'node:crypto'
import type { TokenResponseBody } from './response.ts'

/** Why an authorization is dead: RFC 7009, its user or an administrator, a second presentation, a later sign-in, or its account is gone. */
export type End = 'revoked' | 'withdrawn' | 'replayed' | 'superseded' | 'account deleted'

/** The grant of one user, or of the client itself. It is ended as a whole. */
export interface Authorization {
  readonly username: string | null
  readonly scope: string
  /** Whether tokens of it can be refreshed at all. */
  readonly isRefreshable: boolean
  /** Epoch milliseconds. */
  readonly openedAt: number
  ended: End | null
  /** Number of access tokens issued to it so far. */
  issued: number
}

interface CodeRecord {
  readonly authorization: Authorization
  readonly redirectUri: string
  /** PKCE S256 challenge; null if none was sent. */
  readonly challenge: string | null
  readonly expiresAt: number
  used: boolean
}

interface AccessRecord {
  readonly authorization: Authorization
  /** 1 for the first access token of its authorization. */
  readonly number: number
  expiresAt: number
  ended: boolean
  /** The refresh token that it was issued for, which its first use may end. */
  readonly predecessor: RefreshRecord | null
}

/** A refresh token as the server remembers it. */
export interface RefreshRecord {
  readonly authorization: Authorization
  /** Epoch milliseconds of its first use; null before. */
  usedAt: number | null
  ended: End | null
  readonly expiresAt: number
  /** The access token that came with it. */
  readonly access: string | null
  /** What its first use was granted. */
  answer: TokenResponseBody | null
}

/** What an access token is worth. `ended`: before its time. */
type AccessToken =
  | { readonly kind: 'valid'; readonly authorization: Authorization }
  | { readonly kind: 'unknown' | 'expired' | 'ended' }

export type Authorizations = ReturnType<typeof createAuthorizations>

/** All issued codes and tokens, in memory. Tokens are opaque random strings. */
export function createAuthorizations({ now }: { now: () => number }) {
  const authorizations = new Set<Authorization>()
  const codes = new Map<string, CodeRecord>()
  const accessTokens = new Map<string, AccessRecord>()
  const refreshTokens = new Map<string, RefreshRecord>()

  function endAccessToken(token: string | null): void {
    const record = accessTokens.get(token ?? '')
    if (record !== undefined) record.ended = true
  }

  return {
    open(username: string | null, scope: string, { isRefreshable = true } = {}): Authorization {
      const authorization: Authorization = {
        username,
        scope,
        isRefreshable,
        openedAt: now(),
        ended: null,
        issued: 0,
      }
      authorizations.add(authorization)
      return authorization
    },

    issueCode(record: Omit<CodeRecord, 'used'>): string {
      const code = opaque('code')
      codes.set(code, { ...record, used: false })
      return code
    },

    findCode(code: string): CodeRecord | null {
      return codes.get(code) ?? null
    },

    issueAccessToken(
      authorization: Authorization,
      lifeSeconds: number,
      predecessor: RefreshRecord | null = null,
    ): string {
      const token = opaque('at')
      authorization.issued += 1
      accessTokens.set(token, {
        authorization,
        number: authorization.issued,
        expiresAt: now() + lifeSeconds * 1000,
        ended: false,
        predecessor,
      })
      return token
    },

    /** The number of an access token, valid or not; null for any other text. Shown in place of the token. */
    accessTokenNumber(token: string): number | null {
      return accessTokens.get(token)?.number ?? null
    },

    /** The authorization that a code or a token belongs to, valid or not; null for any other text. */
    authorizationOf(text: string): Authorization | null {
      const record = codes.get(text) ?? accessTokens.get(text) ?? refreshTokens.get(text)
      return record?.authorization ?? null
    },

    /** A token that a resource server presents. `outlives`: it is valid although its authorization has ended. */
    presentAccessToken(token: string, { outlives }: { outlives: boolean }): AccessToken {
      const record = accessTokens.get(token)
      if (record === undefined) return { kind: 'unknown' }
      const { authorization, predecessor } = record
      if (record.ended || (authorization.ended !== null && !outlives)) return { kind: 'ended' }
      if (record.expiresAt <= now()) return { kind: 'expired' }
      if (predecessor !== null) {
        predecessor.ended ??= 'revoked'
        endAccessToken(predecessor.access)
      }
      return { kind: 'valid', authorization }
    },

    issueRefreshToken(
      authorization: Authorization,
      { access = null, lifeSeconds = null }: { access?: string | null; lifeSeconds?: number | null } = {},
    ): string {
      const token = opaque('rt')
      const expiresAt = lifeSeconds === null ? Number.POSITIVE_INFINITY : now() + lifeSeconds * 1000
      refreshTokens.set(token, { authorization, usedAt: null, ended: null, expiresAt, access, answer: null })
      return token
    },

    findRefreshToken(token: string): RefreshRecord | null {
      return refreshTokens.get(token) ?? null
    },

    /** Lets the access tokens of all authorizations expire. */
    expireAccessTokens(): void {
      for (const record of accessTokens.values()) record.expiresAt = 0
    },

    /** Ends the access tokens of one authorization before their time. */
    endAccessTokens(authorization: Authorization): void {
      for (const record of accessTokens.values())
        if (record.authorization === authorization) record.ended = true
    },

    /**
     * Revokes a token (RFC 7009 section 2.1). `cascade`: a refresh token ends its whole authorization, an access token
     * only itself. `both`: either ends it. `pair`: a refresh token and the access token that came with it end together.
     * `each`: a token ends itself. Unknown tokens are ignored.
     */
    revokeToken(token: string, reach: 'cascade' | 'both' | 'pair' | 'each'): Authorization | null {
      const refresh = refreshTokens.get(token)
      const access = accessTokens.get(token)
      const { authorization } = refresh ?? access ?? { authorization: null }
      if (authorization === null) return null
      if (reach === 'both' || (reach === 'cascade' && refresh !== undefined))
        authorization.ended ??= 'revoked'
      if (refresh !== undefined) {
        refresh.ended ??= 'revoked'
        if (reach === 'pair') endAccessToken(refresh.access)
      } else {
        access!.ended = true
        if (reach === 'pair')
          for (const record of refreshTokens.values()) if (record.access === token) record.ended ??= 'revoked'
      }
      return authorization
    },

    /** Ends every authorization of this user, or of all users, but for `kept`. Returns how many were active. */
    end(reason: End, username?: string, kept?: Authorization): number {
      let ended = 0
      for (const authorization of authorizations) {
        if (
          authorization === kept ||
          authorization.ended !== null ||
          (username !== undefined && authorization.username !== username)
        )
          continue
        authorization.ended = reason
        ended += 1
      }
      return ended
    },

    /** Ends the refresh tokens of this user's other authorizations; their access tokens stay valid. */
    endRefreshTokens(reason: End, username: string, kept: Authorization): void {
      for (const record of refreshTokens.values())
        if (record.authorization !== kept && record.authorization.username === username)
          record.ended ??= reason
    },
  }
}

function opaque(kind: 'code' | 'at' | 'rt'): string {
  return `${kind}-${randomBytes(32).toString('base64url')}`
}
