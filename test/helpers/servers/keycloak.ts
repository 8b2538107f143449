import { cpSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Teardown } from '../child.ts'
import { makeFolder } from '../watchdog.ts'
import { createProgram, freeOrigin } from './program.ts'
import { CREDENTIALS, decideByForms, PASSWORD, type RealServer, withBearer } from './real-server.ts'

export const ARTIFACT = 'org.keycloak:keycloak-quarkus-dist:26.7.3:zip'

const REALM = 'REALM'
const ADMIN = { username: 'admin', password: 'admin' }

/** Keycloak in its development mode, on H2. The realm has the name that docs/servers.md has. */
export async function startKeycloak(t: Teardown, unpacked: string, callback: string): Promise<RealServer> {
  const home = makeFolder('keycloak')
  const [distribution] = readdirSync(unpacked).filter((name) => /^keycloak-[\d.]+$/.test(name))
  cpSync(join(unpacked, distribution ?? ''), home, { recursive: true })
  const [{ origin, port }, { port: management }] = [await freeOrigin(), await freeOrigin()]
  await createProgram(t)({
    command: 'bash',
    args: [
      join(home, 'bin/kc.sh'),
      ...['start-dev', '--cache=local', '--http-host=127.0.0.1', `--http-port=${port}`],
      ...[`--http-management-port=${management}`, `--hostname=${origin}`],
    ],
    env: {
      ...{ PATH: process.env.PATH ?? '', HOME: home },
      ...{ KC_BOOTSTRAP_ADMIN_USERNAME: ADMIN.username, KC_BOOTSTRAP_ADMIN_PASSWORD: ADMIN.password },
    },
    url: `${origin}/realms/master`,
  })

  const admin = async (method: string, path: string, body?: object): Promise<unknown> => {
    const granted = await fetch(`${origin}/realms/master/protocol/openid-connect/token`, {
      method: 'POST',
      body: new URLSearchParams({ client_id: 'admin-cli', grant_type: 'password', ...ADMIN }),
    })
    const { access_token } = (await granted.json()) as { access_token: string }
    const answer = await fetch(`${origin}/admin/realms${path}`, {
      method,
      headers: { authorization: `Bearer ${access_token}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`Keycloak: ${method} ${path}: ${answer.status} ${text}`)
    return text === '' ? null : JSON.parse(text)
  }
  await admin('POST', '', {
    ...{ realm: REALM, enabled: true, sslRequired: 'none' },
    clients: [
      {
        ...{ clientId: CREDENTIALS.CLIENT_ID, secret: CREDENTIALS.CLIENT_SECRET, enabled: true },
        ...{ protocol: 'openid-connect', publicClient: false, standardFlowEnabled: true },
        // Without it nobody can refuse.
        ...{ consentRequired: true, redirectUris: [callback] },
      },
    ],
  })
  const accounts = ['alice', 'bob'] as const
  for (const username of accounts)
    await admin('POST', `/${REALM}/users`, {
      ...{ username, enabled: true, email: `${username}@example.com`, emailVerified: true },
      ...{ firstName: username, lastName: 'Test' },
      credentials: [{ type: 'password', value: PASSWORD, temporary: false }],
    })
  // It makes its first page while the visitor waits, which may take longer than the doctor does.
  const first = new URLSearchParams({
    client_id: CREDENTIALS.CLIENT_ID,
    response_type: 'code',
    scope: 'openid',
  })
  await fetch(`${origin}/realms/${REALM}/protocol/openid-connect/auth?${first}`)
  return {
    origin,
    env: CREDENTIALS,
    accounts,
    guard: withBearer(`${origin}/realms/${REALM}/protocol/openid-connect/userinfo`),
    decide: decideByForms({
      signIn: (account) => ({ form: /name="password"/, values: { username: account, password: PASSWORD } }),
      choose: (accepts) => ({ button: accepts ? /name="accept"/ : /name="cancel"/ }),
    }),
    async withdraw() {
      const [user] = (await admin('GET', `/${REALM}/users?exact=true&username=alice`)) as { id: string }[]
      await admin('POST', `/${REALM}/users/${user?.id}/logout`)
    },
    setLife: async (seconds) => {
      await admin('PUT', `/${REALM}`, { accessTokenLifespan: seconds })
    },
  }
}
