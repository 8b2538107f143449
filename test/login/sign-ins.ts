// Parts of sign-ins, and servers over a Redis of their own.

import type { Sandbox } from '../../sandbox/sandbox.ts'
import type { Answer, Browser, RequestOptions } from '../helpers/browser.ts'
import type { Teardown } from '../helpers/child.ts'
import { DURABLE, startRedis } from '../helpers/redis.ts'
import { decide, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'

export const ALICE = { username: 'alice', password: 'wonderland' }

/** Begins a sign-in that the user accepts or refuses. Returns the address to which the browser is sent back. */
export async function begin(
  browser: Browser,
  sandbox: Sandbox,
  { query = '', decision = 'accept' as 'accept' | 'refuse', headers = {} } = {},
): Promise<string> {
  const start = await browser.navigate(`/auth/login${query}`, { headers })
  return await decide(sandbox, String(start.headers.location), decision)
}

/** The callback of a browser that comes from the authorization server. */
export function comeBack(browser: Browser, address: string, headers = {}): Promise<Answer> {
  return browser.navigate(address, { from: 'cross-site', headers })
}

/** A sign-in by user name and password. */
export function sendPassword(browser: Browser, body: unknown, options: RequestOptions = {}): Promise<Answer> {
  const headers = { 'content-type': 'application/json', ...options.headers }
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  return browser.fetch('/auth/password', { method: 'POST', body: text, ...options, headers })
}

/** A browser that comes back in the token flow. */
export interface Arrival {
  /** Path of the callback. */
  path: string
  /** Members of the fragment, as the page sends them. */
  members: Record<string, string>
}

export function arrivalAt(address: string): Arrival {
  const { pathname, search, hash } = new URL(address)
  return { path: pathname + search, members: Object.fromEntries(new URLSearchParams(hash.slice(1))) }
}

/** What the script of the page sends. */
export function postFragment(browser: Browser, { path, members }: Arrival, headers = {}): Promise<Answer> {
  const all = { 'content-type': 'application/json', ...headers }
  return browser.fetch(path, { method: 'POST', body: JSON.stringify(members), headers: all })
}

/** A sandbox, a Redis that keeps its data, a server over both that is ready, and a browser that has signed in. */
export async function signedInOverRedis(t: Teardown, env: Record<string, string> = {}) {
  const sandbox = await startSandbox(t)
  const redis = await startRedis(t, { args: DURABLE })
  const bff = await startBff(t, sandbox, {
    REDIS_URL: redis.url,
    OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke`,
    ...env,
  })
  await untilReady(bff)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.journal.clear()
  return { sandbox, redis, bff, browser }
}
