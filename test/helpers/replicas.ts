import type { JournalEntry } from '../../src/sandbox/journal.ts'
import type { Sandbox } from '../../src/sandbox/sandbox.ts'
import type { Browser } from './browser.ts'
import type { Teardown } from './child.ts'
import { type RedisServer, startRedis } from './redis.ts'
import { type Bff, signIn, startBff, startSandbox, untilReady } from './system.ts'

/** Three replicas in this process over one Redis, in front of a sandbox that revokes at reuse. */
export interface Replicas {
  redis: RedisServer
  sandbox: Sandbox
  replicas: [Bff, Bff, Bff]
}

export async function startReplicas(t: Teardown, env: Record<string, string> = {}): Promise<Replicas> {
  // What it has said yes to it still knows after it was killed.
  const redis = await startRedis(t, { args: ['--appendonly', 'yes', '--appendfsync', 'always'] })
  const sandbox = await startSandbox(t)
  const all = { REDIS_URL: redis.url, OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke`, ...env }
  const start = (): Promise<Bff> => startBff(t, sandbox, all)
  const replicas: [Bff, Bff, Bff] = [await start(), await start(), await start()]
  await Promise.all(replicas.map(untilReady))
  return { redis, sandbox, replicas }
}

/** A browser that is signed in with a token that is due at once: nothing in the background for ten seconds. */
export async function signInExpired(bff: Bff, sandbox: Sandbox): Promise<Browser> {
  return await signInFor(bff, sandbox, 0)
}

/** Signed in with a token that says that it lives so many seconds; those that come after say the truth. */
export async function signInFor(bff: Bff, sandbox: Sandbox, seconds: number): Promise<Browser> {
  const before = sandbox.faults.current().expiresIn
  sandbox.faults.set({ expiresIn: { value: seconds } })
  const browser = bff.browser()
  const answer = await signIn(browser, sandbox)
  sandbox.faults.set({ expiresIn: before })
  if (answer.status !== 303) throw new Error(`the sign-in answered ${answer.status}: ${answer.text}`)
  return browser
}

/** The same browser as it reaches another replica. */
export function through(replica: Bff, browser: Browser): Browser {
  const other = replica.browser()
  for (const [name, cookie] of browser.cookies) other.cookies.set(name, cookie)
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

/** Milliseconds until `look` says yes; asks every 25 ms. Throws when it takes longer than `withinMs`. */
export async function until(
  what: string,
  look: () => boolean | Promise<boolean>,
  withinMs = 10_000,
): Promise<number> {
  const startedAt = performance.now()
  for (;;) {
    if (await look()) return performance.now() - startedAt
    if (performance.now() - startedAt > withinMs) throw new Error(`${what}: not within ${withinMs} ms`)
    await elapsed(25)
  }
}

/** Lets real time pass, where time itself is the matter: the life of a token, a limit. */
export function elapsed(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
