// What docs/servers.md says of each measured server.

import { tableRows } from '../documentation.ts'

export const PAGE = 'docs/servers.md'

/** Headings of the page by the profile that is described there. */
export const HEADINGS: Readonly<Record<string, string>> = {
  'django-oauth-toolkit': 'django-oauth-toolkit 1.7',
  'django-oauth-toolkit-3': 'django-oauth-toolkit 3.4',
  doorkeeper: 'Doorkeeper',
  'lemonldap-ng': 'LemonLDAP::NG',
  glewlwyd: 'glewlwyd',
  'oidc-provider': 'oidc-provider',
  'node-oauth2-server': 'node-oauth2-server',
  oauth2orize: 'oauth2orize',
  keycloak: 'Keycloak',
  hydra: 'Ory Hydra',
  'spring-authorization-server': 'Spring Authorization Server',
  authlib: 'Authlib',
  canaille: 'Canaille',
  dex: 'Dex',
}

/** The cells of its row. */
export interface Documented {
  readonly refresh: string
  readonly oldAccess: string
  readonly lostAnswer: string
  readonly secondBrowser: string
  readonly withdrawn: string
  readonly signOut: string
  readonly refusal: string
}

/** What the page says of the server with this profile. */
export function documented(profile: string): Documented {
  const heading = HEADINGS[profile]!
  const row = tableRows(PAGE, 'What happens there').find(([cell]) => cell?.startsWith(`[${heading}](`))
  if (row === undefined) throw new Error(`${PAGE} has no row for ${heading}`)
  const [, refresh, oldAccess, lostAnswer, secondBrowser, withdrawn, signOut, refusal] = row
  return { refresh, oldAccess, lostAnswer, secondBrowser, withdrawn, signOut, refusal } as Documented
}
