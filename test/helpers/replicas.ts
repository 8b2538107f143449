// Three server replicas over one Redis, in front of a sandbox. Sign-in and the refresh requests of a test.

import type { JournalEntry } from '../../sandbox/journal.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { type Browser, createBrowser } from './browser.ts'
import type { Teardown } from './child.ts'
import { DURABLE, startRedis } from './redis.ts'
import { type Bff, signInSurely, startBff, startSandbox, untilReady } from './system.ts'

export type Replicas = Awaited<ReturnType<typeof startReplicas>>

/** Three replicas in this process over one Redis, in front of a sandbox that revokes at reuse. */
export async function startReplicas(t: Teardown, env: Record<string, string> = {}) {
  const redis = await startRedis(t, { args: DURABLE })
  const sandbox = await startSandbox(t)
  // A call of one replica sees what another has just done.
  const own = { REDIS_URL: redis.url, SESSION_CACHE_MS: '0' }
  const all = { ...own, OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke`, ...env }
  const start = (): Promise<Bff> => startBff(t, sandbox, all)
  const replicas: [Bff, Bff, Bff] = [await start(), await start(), await start()]
  await Promise.all(replicas.map(untilReady))
  return { redis, sandbox, replicas }
}

/** A signed-in browser whose token is due at once. No background refresh follows for ten seconds. */
export async function signInExpired(bff: Bff, sandbox: Sandbox): Promise<Browser> {
  const before = sandbox.faults.current().expiresIn
  // Later tokens state their true lifetime.
  sandbox.faults.set({ expiresIn: { value: 0 } })
  const browser = bff.browser()
  try {
    await signInSurely(browser, sandbox)
  } finally {
    sandbox.faults.set({ expiresIn: before })
  }
  return browser
}

/** A browser with the same cookies, at a server that is another replica, or the next process. */
export function through({ publicUrl }: { publicUrl: string }, { cookies }: Browser): Browser {
  const other = createBrowser(publicUrl)
  for (const [name, cookie] of cookies) other.cookies.set(name, cookie)
  return other
}

/** Refresh requests that reached the authorization server, in order. */
export function presentations(sandbox: Sandbox): JournalEntry[] {
  return sandbox.journal.entries({ endpoint: 'token', kind: 'refresh_token' })
}

/** The access token that the newest GetFlux call brought. */
export function lastBearer(sandbox: Sandbox): string | undefined {
  return sandbox.journal.entries({ endpoint: 'resource' }).at(-1)?.headers.authorization
}
