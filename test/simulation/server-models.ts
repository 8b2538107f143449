/** What an authorization server does with a refresh token that was used before, and how it says that one is dead. */
export interface ServerModel {
  readonly name: string
  /** A refresh uses the refresh token up. */
  readonly rotates: boolean
  /** A used refresh token is granted again for so long after its first use; else 0. */
  readonly graceSeconds: number
  /** How often at most. */
  readonly graceUses: number
  /** What it then brings: the tokens of the first use, or another pair beside them. */
  readonly again: 'same' | 'another'
  /** A used refresh token is granted again until the access token of its first use is used. */
  readonly untilUsed: boolean
  /** One that is used after all that: it is refused, or everything from this sign-in ends. */
  readonly reuse: 'refused' | 'ends'
  /** The answer for a dead one. */
  readonly dead: { readonly status: number; readonly error: string | null }
}

const INVALID_GRANT = { status: 400, error: 'invalid_grant' } as const
const STRICT = {
  rotates: true,
  graceSeconds: 0,
  graceUses: 0,
  again: 'same',
  untilUsed: false,
  reuse: 'refused',
  dead: INVALID_GRANT,
} as const
const KEPT = { ...STRICT, rotates: false } as const
const grace = (seconds: number, again: ServerModel['again'], reuse: ServerModel['reuse']) => ({
  ...STRICT,
  graceSeconds: seconds,
  graceUses: Number.POSITIVE_INFINITY,
  again,
  reuse,
})

/** As measured with real servers (docs/servers.md), each with the settings that matter here. */
export const SERVER_MODELS: readonly ServerModel[] = [
  { ...STRICT, name: 'django-oauth-toolkit' },
  { ...grace(60, 'same', 'refused'), name: 'django-oauth-toolkit, grace' },
  { ...grace(60, 'same', 'ends'), name: 'django-oauth-toolkit, grace and reuse protection' },
  { ...STRICT, name: 'doorkeeper', untilUsed: true, again: 'another' },
  { ...KEPT, name: 'lemonldap-ng', dead: { status: 400, error: 'invalid_request' } },
  { ...KEPT, name: 'glewlwyd', dead: { status: 400, error: null } },
  { ...STRICT, name: 'glewlwyd, one use', reuse: 'ends', dead: { status: 400, error: null } },
  { ...KEPT, name: 'oidc-provider' },
  { ...STRICT, name: 'node-oauth2-server' },
  { ...STRICT, name: 'oauth2orize', dead: { status: 403, error: 'invalid_grant' } },
  { ...KEPT, name: 'keycloak' },
  { ...STRICT, name: 'keycloak, rotation', reuse: 'ends' },
  { ...grace(3_600, 'another', 'ends'), graceUses: 1, name: 'keycloak, rotation and reuse 1' },
  { ...STRICT, name: 'hydra', reuse: 'ends' },
  { ...grace(180, 'another', 'ends'), name: 'hydra, grace' },
  { ...KEPT, name: 'spring-authorization-server' },
  { ...STRICT, name: 'spring-authorization-server, rotation' },
  { ...STRICT, name: 'authlib' },
  { ...STRICT, name: 'canaille' },
  { ...STRICT, name: 'dex', dead: { status: 400, error: 'invalid_request' } },
  { ...grace(60, 'another', 'refused'), name: 'dex, reuse', dead: { status: 400, error: 'invalid_request' } },
]
