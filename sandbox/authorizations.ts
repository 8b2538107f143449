import { randomBytes } from 'node:crypto'

/** The grant of one user, or of the client itself. It is revoked as a whole. */
export interface Authorization {
  readonly username: string | null
  readonly scope: string
  revoked: boolean
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
}

interface RefreshRecord {
  readonly authorization: Authorization
  used: boolean
}

export type Authorizations = ReturnType<typeof createAuthorizations>

/** All issued codes and tokens, in memory. Tokens are opaque random strings. */
export function createAuthorizations({ now }: { now: () => number }) {
  const authorizations = new Set<Authorization>()
  const codes = new Map<string, CodeRecord>()
  const accessTokens = new Map<string, AccessRecord>()
  const refreshTokens = new Map<string, RefreshRecord>()

  return {
    open(username: string | null, scope: string): Authorization {
      const authorization: Authorization = { username, scope, revoked: false, issued: 0 }
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

    issueAccessToken(authorization: Authorization, lifeSeconds: number): string {
      const token = opaque('at')
      authorization.issued += 1
      accessTokens.set(token, {
        authorization,
        number: authorization.issued,
        expiresAt: now() + lifeSeconds * 1000,
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

    /** The authorization of a valid access token; null for any other text. */
    accessTokenOwner(token: string): Authorization | null {
      const record = accessTokens.get(token)
      if (record === undefined || record.authorization.revoked || record.expiresAt <= now()) return null
      return record.authorization
    },

    issueRefreshToken(authorization: Authorization): string {
      const token = opaque('rt')
      refreshTokens.set(token, { authorization, used: false })
      return token
    },

    findRefreshToken(token: string): RefreshRecord | null {
      return refreshTokens.get(token) ?? null
    },

    /** Revokes only the access tokens of one authorization, or of all. */
    expireAccessTokens(authorization?: Authorization): void {
      for (const record of accessTokens.values()) {
        if (authorization === undefined || record.authorization === authorization) record.expiresAt = 0
      }
    },

    /**
     * Revokes a token (RFC 7009 section 2.1): the whole authorization for a refresh
     * token, only the token itself for an access token. Unknown tokens are ignored.
     */
    revokeToken(token: string): Authorization | null {
      const refresh = refreshTokens.get(token)
      if (refresh !== undefined) {
        refresh.authorization.revoked = true
        return refresh.authorization
      }
      const access = accessTokens.get(token)
      if (access === undefined) return null
      access.expiresAt = 0
      return access.authorization
    },

    /** Revokes every authorization of this user, or of all users, but for `kept`. Returns how many were active. */
    revoke(username?: string, kept?: Authorization): number {
      let ended = 0
      for (const authorization of authorizations) {
        if (
          authorization === kept ||
          authorization.revoked ||
          (username !== undefined && authorization.username !== username)
        )
          continue
        authorization.revoked = true
        ended += 1
      }
      return ended
    },
  }
}

function opaque(kind: 'code' | 'at' | 'rt'): string {
  return `${kind}-${randomBytes(32).toString('base64url')}`
}
