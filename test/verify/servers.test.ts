import t from 'tap'
import type { Teardown } from '../helpers/child.ts'
import * as authlib from '../helpers/servers/authlib.ts'
import * as django from '../helpers/servers/django.ts'
import * as doorkeeper from '../helpers/servers/doorkeeper.ts'
import { runFlows } from '../helpers/servers/flows.ts'
import * as glewlwyd from '../helpers/servers/glewlwyd.ts'
import { ARTIFACT, startKeycloak } from '../helpers/servers/keycloak.ts'
import * as lemonldap from '../helpers/servers/lemonldap.ts'
import {
  copyMaven,
  type Fetched,
  installPython,
  unpackDebian,
  unpackMaven,
} from '../helpers/servers/packages.ts'
import type { RealServer } from '../helpers/servers/real-server.ts'
import { POM, startSpring } from '../helpers/servers/spring.ts'

/** Real authorization servers of other ecosystems, by the profiles that were made after them. */
const SERVERS: Record<
  string,
  { fetched: () => Fetched; start: (t: Teardown, folder: string, callback: string) => Promise<RealServer> }
> = {
  glewlwyd: {
    fetched: () => unpackDebian('glewlwyd', glewlwyd.PACKAGES),
    start: glewlwyd.startGlewlwyd,
  },
  doorkeeper: {
    fetched: () => unpackDebian('doorkeeper', doorkeeper.PACKAGES),
    start: doorkeeper.startDoorkeeper,
  },
  'lemonldap-ng': {
    fetched: () => unpackDebian('lemonldap', lemonldap.PACKAGES),
    start: lemonldap.startLemonldap,
  },
  'django-oauth-toolkit-3': {
    fetched: () => installPython('django', django.PACKAGES),
    start: django.startDjango,
  },
  authlib: {
    fetched: () => installPython('authlib', authlib.PACKAGES),
    start: authlib.startAuthlib,
  },
  keycloak: {
    fetched: () => unpackMaven('keycloak', ARTIFACT),
    start: startKeycloak,
  },
  'spring-authorization-server': {
    fetched: () => copyMaven('spring', POM),
    start: startSpring,
  },
}

for (const [profile, { fetched, start }] of Object.entries(SERVERS))
  t.test(`${profile}, as docs/servers.md has it`, async (t) => {
    const found = fetched()
    if (found.lacks !== false) return t.plan(0, found.lacks)
    await runFlows(t, { profile, start: (t, callback) => start(t, found.folder, callback) })
  })
