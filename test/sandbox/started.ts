import type { Test } from 'tap'
import type { TokenResponseBody } from '../../sandbox/response.ts'
import { createSandbox, type Sandbox } from '../../sandbox/sandbox.ts'
import type { SandboxOptions } from '../../sandbox/settings.ts'

/** A secret with every character that a form encoding must carry. */
export const CLIENT = {
  clientId: 'the client/1',
  clientSecret: 's3+c&r=e%t ü',
  callback: 'http://app.localhost:3000/auth/callback',
}

export const REDIRECT_URI = 'http://app.localhost:3000/auth/callback/abc'
export const SCOPE = 'http://platform.example'

/** A sandbox that listens and ends with the test. */
export async function startSandbox(t: Test, options: Partial<SandboxOptions> = {}): Promise<Sandbox> {
  const sandbox = createSandbox({ client: CLIENT, ...options })
  await sandbox.listen()
  t.teardown(() => sandbox.close())
  return sandbox
}

/** A token request with the client's credentials; a field given here wins. */
export async function tokenRequest(sandbox: Sandbox, fields: Record<string, string>): Promise<Response> {
  const { clientId, clientSecret } = CLIENT
  return fetch(`${sandbox.authUrl}/oauth/token`, {
    method: 'POST',
    body: new URLSearchParams({ client_id: clientId, client_secret: clientSecret, ...fields }),
  })
}

/** The documented form of a refresh. */
export function refresh(sandbox: Sandbox, refreshToken: string | undefined): Promise<Response> {
  return tokenRequest(sandbox, { grant_type: 'refresh_token', refresh_token: refreshToken ?? '' })
}

export function authorizeUrl(sandbox: Sandbox, changes: Record<string, string | null> = {}): string {
  const url = new URL(`${sandbox.authUrl}/oauth/authorize`)
  const query = {
    client_id: CLIENT.clientId,
    response_type: 'code',
    redirect_uri: REDIRECT_URI,
    scope: SCOPE,
    ...changes,
  }
  for (const [name, value] of Object.entries(query)) if (value !== null) url.searchParams.set(name, value)
  return url.href
}

/** What the browser sends when alice accepts on the authorize page. */
export function decide(url: string): Promise<Response> {
  const body = new URLSearchParams({ username: 'alice', password: 'wonderland', decision: 'accept' })
  return fetch(url, { method: 'POST', body, redirect: 'manual' })
}

/** A code for alice. */
export async function codeFor(sandbox: Sandbox, changes: Record<string, string> = {}): Promise<string> {
  const { headers } = await decide(authorizeUrl(sandbox, changes))
  return new URL(headers.get('location') ?? '').searchParams.get('code') ?? ''
}

/** A GetFlux call with this access token in the header. */
export function getFlux(sandbox: Sandbox, accessToken: string): Promise<Response> {
  const headers = { authorization: `Bearer ${accessToken}` }
  return fetch(`${sandbox.baseUrl}/DEMO/flux/temperature`, { headers })
}

export async function tokensOf(response: Response): Promise<TokenResponseBody> {
  return (await response.json()) as TokenResponseBody
}

/** The `error` member of a JSON body. */
export async function errorOf(response: Response): Promise<unknown> {
  return ((await response.json()) as Record<string, unknown>).error
}
