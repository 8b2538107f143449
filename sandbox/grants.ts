import { createHash } from 'node:crypto'
import type { Accounts } from './accounts.ts'
import type { Authorization, Authorizations, RefreshRecord } from './authorizations.ts'
import type { FaultSwitches } from './faults.ts'
import type { AnswerName } from './profile.ts'
import type { TokenResponseBody } from './response.ts'
import type { Settings } from './settings.ts'

/** The result of a grant: tokens, or an error of RFC 6749 section 5.2, with its name in the table of a profile. */
export type GrantResult =
  | {
      kind: 'granted'
      authorization: Authorization
      refreshToken: 'new' | 'none' | { keep: string }
      /** The refresh token that was presented; null for other grants. */
      presented: RefreshRecord | null
    }
  /** What the first use of a refresh token was granted. */
  | { kind: 'repeated'; authorization: Authorization; answer: TokenResponseBody }
  | { kind: 'refused'; error: string; description: string; name: AnswerName | null }

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
  if (record === null) return refused('invalid_grant', 'The code is not known.', 'code: unknown')
  const { redirectAtTokenEndpoint, pkce, codeReuse } = faults.current()
  if (record.used) {
    // RFC 6749 section 4.1.2: a code that is used twice may be stolen, so its tokens are revoked.
    if (codeReuse === 'revoke') record.authorization.ended ??= 'replayed'
    return refused('invalid_grant', 'The code was used before.', 'code: used')
  }
  record.used = true
  if (record.expiresAt <= settings.now())
    return refused('invalid_grant', 'The code is too old.', 'code: unknown')
  if (record.authorization.ended !== null)
    return refused('invalid_grant', 'The authorization was taken back.', 'code: unknown')
  if (redirectAtTokenEndpoint === 'check' && field('redirect_uri') !== record.redirectUri) {
    const description = 'redirect_uri differs from that of the authorize request.'
    return refused('invalid_grant', description, 'code: unknown')
  }
  if (pkce !== 'ignore' && !verifies(field('code_verifier'), record.challenge)) {
    return refused('invalid_grant', 'code_verifier does not match the challenge.', 'code: verifier')
  }
  return granted(record.authorization, 'new')
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
  return granted(authorizations.open(user.username, scope), 'new')
}

function redeemClientCredentials(field: Parameters<Grant>[0], context: GrantContext): GrantResult {
  const scope = context.accounts.grantedScope(field('scope'), context.ownAddress())
  if (scope === null) return refused('invalid_scope', 'The scope is not known.')
  return granted(context.authorizations.open(null, scope), 'none')
}

function redeemRefreshToken(field: Parameters<Grant>[0], context: GrantContext): GrantResult {
  const { settings, authorizations, faults, onReuse } = context
  const presented = field('refresh_token') ?? ''
  const switches = faults.current()
  const record = authorizations.findRefreshToken(presented)
  if (record === null) return refused('invalid_grant', 'The refresh token is not known.', 'refresh: unknown')
  const { authorization, usedAt } = record
  const now = settings.now()
  if (usedAt !== null) {
    onReuse()
    const isInGrace = now - usedAt < switches.refreshGraceSeconds * 1_000
    const isAllowed = switches.refreshReuse === 'allow' || switches.refreshReuse === 'until-first-use'
    if (
      isInGrace &&
      switches.graceTokens === 'same' &&
      record.answer !== null &&
      authorization.ended === null
    )
      return { kind: 'repeated', authorization, answer: record.answer }
    if (!isInGrace && switches.refreshReuse === 'revoke') authorization.ended ??= 'replayed'
    if (!isInGrace && !isAllowed)
      return refused('invalid_grant', 'The refresh token was used before.', 'refresh: used')
  }
  const end = authorization.ended ?? record.ended
  if (end !== null) return refused('invalid_grant', 'The authorization was taken back.', `refresh: ${end}`)
  const { grantLifeSeconds } = switches
  const isTooOld = grantLifeSeconds !== null && now - authorization.openedAt >= grantLifeSeconds * 1_000
  if (isTooOld || record.expiresAt <= now)
    return refused('invalid_grant', 'The refresh token is too old.', 'refresh: expired')

  if (switches.rotateAccess) authorizations.endAccessTokens(authorization)
  if (switches.sameRefreshToken) return granted(authorization, { keep: presented }, record)
  if (switches.omitRefreshToken === true || switches.omitRefreshToken === 'at-refresh')
    return granted(authorization, 'none', record)
  record.usedAt ??= now
  return granted(authorization, switches.omitRefreshToken === 'last-use' ? 'none' : 'new', record)
}

function granted(
  authorization: Authorization,
  refreshToken: Extract<GrantResult, { kind: 'granted' }>['refreshToken'],
  presented: RefreshRecord | null = null,
): GrantResult {
  return { kind: 'granted', authorization, refreshToken, presented }
}

function refused(error: string, description: string, name: AnswerName | null = null): GrantResult {
  return { kind: 'refused', error, description, name }
}
