import { readFileSync } from 'node:fs'

/** How long access tokens live in the demo: short, so that the refreshes can be watched. */
export const TOKEN_SECONDS = 20

/** What the demo's server is in front of. */
interface Setting {
  publicUrl: string
  sandboxUrl: string
  /** The server's variables for the sandbox's profile; none without one. */
  profile: Readonly<Record<string, string>>
  client: { id: string; secret: string }
  /** Path of the file of operations, in which the sandbox has found no fault. */
  operations: string
}

/** The server's variables in the demo, but those of its process: addresses to listen at, a secret, the page. */
export function serverVariables({ publicUrl, sandboxUrl, profile, client, operations }: Setting) {
  return {
    PUBLIC_URL: publicUrl,
    AUTH_URL: sandboxUrl,
    BASE_URL: sandboxUrl,
    ...(Object.keys(profile).length === 0 ? { OAUTH_REVOCATION_URL: `${sandboxUrl}/oauth/revoke` } : {}),
    CLIENT_ID: client.id,
    CLIENT_SECRET: client.secret,
    SESSION_STORE: 'memory',
    WAC: 'DEMO',
    REFRESH_AHEAD_SECONDS: '6',
    REFRESH_THRESHOLD_SECONDS: '3',
    SHUTDOWN_SECONDS: '5',
    OPERATIONS_FILE: operations,
    ...variablesFor(operations),
    ...profile,
  }
}

/** With them the server accepts this file. */
function variablesFor(path: string): Record<string, string> {
  const file = JSON.parse(readFileSync(path, 'utf8')) as {
    operations: Record<string, { account?: string; application?: boolean }>
  }
  const declared = Object.values(file.operations)
  const namesNoAccount = declared.some(({ account, application }) => account === 'none' && !application)
  return {
    OAUTH_FLOWS: declared.some(({ application }) => application) ? 'code,client' : 'code',
    ...(namesNoAccount ? {} : { WAC_ALLOWED: 'DEMO,ACME' }),
  }
}
