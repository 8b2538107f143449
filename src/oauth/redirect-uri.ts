import type { Config } from '../config/config.ts'
import { PATHS } from '../paths.ts'

/** The address that the authorization server sends the browser back to; `nonce` names the sign-in (OAUTH_REDIRECT). */
export function redirectUriOf(
  { publicUrl, oauth }: { publicUrl: string; oauth: Pick<Config['oauth'], 'redirect'> },
  nonce: string,
): string {
  // An address for each sign-in serves authorization servers that do not echo `state`.
  const callback = `${publicUrl}${PATHS.callback}`
  return oauth.redirect === 'fixed' ? callback : `${callback}/${nonce}`
}
