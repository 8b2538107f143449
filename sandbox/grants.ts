import { createHash } from 'node:crypto'
import type { Accounts } from './accounts.ts'
import type { Authorization, Authorizations } from './authorizations.ts'
import type { FaultSwitches } from './faults.ts'
import type { Settings } from './settings.ts'

/** The result of a grant: tokens, or an error of RFC 6749 section 5.2. */
export type GrantResult =
  | { kind: 'granted'; authorization: Authorization; refreshToken: 'new' | 'none' | { keep: string } }
  | { kind: 'refused'; error: string; description: string }

export interface GrantContext {
  settings: Settings
  accounts: Accounts
  authorizations: Authorizations
  faults: FaultSwitches
  ownAddress: () => string
  /** Called for each refresh token that is presented again after its use. */
  onReuse: () => void
}

type Grant = (field: (name: string) => string | undefined, context: GrantContext) => GrantResult

/** The four grants and the fields that each must have besides the client's (document section 5.3). */
export const GRANTS: Readonly<Record<string, { required: readonly string[]; redeem: Grant }>> = {
  authorization_code: { required: ['redirect_uri', 'code'], redeem: redeemCode },
  password: { required: ['redirect_uri', 'username', 'password', 'scope'], redeem: redeemPassword },
  client_credentials: { required: ['scope'], redeem: redeemClientCredentials },
  refresh_token: { required: ['refresh_token'], redeem: redeemRefreshToken },
}

function redeemCode(
  field: Parameters<Grant>[0],
  { settings, authorizations, faults }: GrantContext,
): GrantResult {
  const record = authorizations.findCode(field('code') ?? '')
  if (record === null) return refused('invalid_grant', 'The code is not known.')
  if (record.used) {
    // RFC 6749 section 4.1.2: a code that is used twice may be stolen, so its tokens are revoked.
    record.authorization.revoked = true
    return refused('invalid_grant', 'The code was used before.')
  }
  record.used = true
  const { redirectAtTokenEndpoint, pkce } = faults.current()
  if (record.expiresAt <= settings.now()) return refused('invalid_grant', 'The code is too old.')
  if (record.authorization.revoked) return refused('invalid_grant', 'The authorization was taken back.')
  if (redirectAtTokenEndpoint === 'check' && field('redirect_uri') !== record.redirectUri) {
    return refused('invalid_grant', 'redirect_uri differs from that of the authorize request.')
  }
  if (pkce === 'honour' && !verifies(field('code_verifier'), record.challenge)) {
    return refused('invalid_grant', 'code_verifier does not match the challenge.')
  }
  return { kind: 'granted', authorization: record.authorization, refreshToken: 'new' }
}

// A verifier without a challenge is refused too: an attacker may have removed the challenge.
function verifies(verifier: string | undefined, challenge: string | null): boolean {
  if (verifier === undefined || challenge === null) return verifier === undefined && challenge === null
  return createHash('sha256').update(verifier).digest('base64url') === challenge
}

function redeemPassword(field: Parameters<Grant>[0], context: GrantContext): GrantResult {
  const { settings, accounts, authorizations, faults, ownAddress } = context
  if (settings.passwordGrant === 'off') {
    return refused('unauthorized_client', 'The password grant is not activated for this client.')
  }
  if (!accounts.isRedirectUri(field('redirect_uri') ?? '', faults.current().exactRedirect)) {
    return refused('invalid_request', 'redirect_uri is not in the domain of the registered callback.')
  }
  const scope = accounts.grantedScope(field('scope'), ownAddress())
  if (scope === null) return refused('invalid_scope', 'The scope is not known.')
  const user = accounts.signIn(field('username') ?? '', field('password') ?? '')
  if (user === null) return refused('invalid_grant', 'User name or password is wrong.')
  if (!accounts.mayUsePasswordGrant(user)) {
    return refused('invalid_grant', 'Only the owner of the client may sign in this way.')
  }
  return { kind: 'granted', authorization: authorizations.open(user.username, scope), refreshToken: 'new' }
}

function redeemClientCredentials(field: Parameters<Grant>[0], context: GrantContext): GrantResult {
  const scope = context.accounts.grantedScope(field('scope'), context.ownAddress())
  if (scope === null) return refused('invalid_scope', 'The scope is not known.')
  return { kind: 'granted', authorization: context.authorizations.open(null, scope), refreshToken: 'none' }
}

function redeemRefreshToken(field: Parameters<Grant>[0], context: GrantContext): GrantResult {
  const { authorizations, faults, onReuse } = context
  const presented = field('refresh_token') ?? ''
  const { refreshReuse, sameRefreshToken, omitRefreshToken, rotateAccess } = faults.current()
  const record = authorizations.findRefreshToken(presented)
  if (record === null) return refused('invalid_grant', 'The refresh token is not known.')
  const { authorization } = record
  if (record.used) onReuse()
  if (record.used && refreshReuse === 'revoke') authorization.revoked = true
  if (record.used && refreshReuse !== 'allow') {
    return refused('invalid_grant', 'The refresh token was used before.')
  }
  if (authorization.revoked) return refused('invalid_grant', 'The authorization was taken back.')

  if (rotateAccess) authorizations.expireAccessTokens(authorization)
  if (sameRefreshToken) return { kind: 'granted', authorization, refreshToken: { keep: presented } }
  if (omitRefreshToken) return { kind: 'granted', authorization, refreshToken: 'none' }
  record.used = true
  return { kind: 'granted', authorization, refreshToken: 'new' }
}

function refused(error: string, description: string): GrantResult {
  return { kind: 'refused', error, description }
}
