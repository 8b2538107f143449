// What `npm run doctor -- --live` finds at each measured server: the same at its profile and at the server itself.

import type { Finding } from '../../../operator/report.ts'

interface Measured {
  'refused grant': Partial<Finding>
  rotation: boolean
  'old access token': boolean
  'second sign-in': string
  /** The lines that it prints for the environment, started with none of those that the profile advises. */
  settings: string[]
}

const LIVES = { 'old access token': true, 'second sign-in': 'keeps' }
const ENDS = { 'old access token': false, 'second sign-in': 'keeps' }
const INVALID_GRANT = { 'refused grant': { verdict: 'ok', value: 'invalid_grant' } } as const
const UNKNOWN_WORD = { 'refused grant': { verdict: 'warning' } } as const
const REUSE = 'OAUTH_REUSE_SECONDS=3600'
/** Of each measured server. */
export const MEASURED: Readonly<Record<string, Measured>> = {
  'django-oauth-toolkit': {
    ...INVALID_GRANT,
    rotation: true,
    ...ENDS,
    settings: ['UPSTREAM_INVALID_TOKEN=403:empty'],
  },
  'django-oauth-toolkit-3': {
    ...INVALID_GRANT,
    rotation: true,
    ...ENDS,
    settings: ['UPSTREAM_INVALID_TOKEN=403:empty'],
  },
  doorkeeper: { ...INVALID_GRANT, rotation: true, ...LIVES, settings: [] },
  'lemonldap-ng': {
    ...UNKNOWN_WORD,
    rotation: false,
    ...LIVES,
    settings: ['OAUTH_REFUSED_GRANT=400:invalid_request', REUSE],
  },
  glewlwyd: {
    ...UNKNOWN_WORD,
    rotation: false,
    ...LIVES,
    settings: ['OAUTH_REFUSED_GRANT=400:empty', REUSE],
  },
  'oidc-provider': { ...INVALID_GRANT, rotation: false, ...LIVES, settings: [REUSE] },
  'node-oauth2-server': { ...INVALID_GRANT, rotation: true, ...LIVES, settings: [] },
  oauth2orize: { ...INVALID_GRANT, rotation: true, ...LIVES, settings: [] },
  keycloak: { ...INVALID_GRANT, rotation: true, ...LIVES, settings: [] },
  hydra: { ...INVALID_GRANT, rotation: true, ...ENDS, settings: [] },
  'spring-authorization-server': { ...INVALID_GRANT, rotation: false, ...ENDS, settings: [REUSE] },
  authlib: { ...INVALID_GRANT, rotation: true, ...ENDS, settings: [] },
  canaille: { ...INVALID_GRANT, rotation: true, ...ENDS, settings: [] },
  dex: {
    ...{ ...UNKNOWN_WORD, rotation: true, 'old access token': true, 'second sign-in': 'ends refresh' },
    settings: ['UPSTREAM_INVALID_TOKEN=403:/error=access_denied', 'OAUTH_REFUSED_GRANT=400:invalid_request'],
  },
}
/** What the measurement itself finds. */
export const TO_FIND = ['OAUTH_REFUSED_GRANT', 'OAUTH_REUSE_SECONDS', 'UPSTREAM_INVALID_TOKEN']
