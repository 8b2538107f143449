// oidc-provider as an independent authorization server, with its token requests on record.

import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import Provider, { type GrantContext } from 'oidc-provider'
import type { Teardown } from './child.ts'
import { listenOnLoopback } from './ports.ts'

/** One request to the token endpoint, and its result. */
export interface TokenRequest {
  readonly grantType: string
  /** The form as the provider parsed it. */
  readonly params: Record<string, unknown>
  /** The tokens, or null if the provider refused. */
  readonly granted: { access_token: string; refresh_token?: string } | null
}

export type ForeignServer = Awaited<ReturnType<typeof startForeignServer>>

interface ForeignServerOptions {
  redirectUri: string
  /** Life of an access token in seconds. */
  tokenLifeSeconds: number
}

const CLIENT_ID = 'the-bff'

/** An independent authorization server on loopback, for one client. PKCE is required, refresh tokens rotate, and reuse of one revokes the grant. */
export async function startForeignServer(
  t: Teardown,
  { redirectUri, tokenLifeSeconds }: ForeignServerOptions,
) {
  const server = createServer()
  const issuer = `http://127.0.0.1:${await listenOnLoopback(t, server)}`
  const clientSecret = randomBytes(32).toString('base64url')
  const provider = createQuietly(issuer, {
    clients: [
      {
        client_id: CLIENT_ID,
        client_secret: clientSecret,
        redirect_uris: [redirectUri],
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        token_endpoint_auth_method: 'client_secret_post',
      },
    ],
    scopes: ['openid', 'offline_access', 'platform'],
    ttl: {
      ...{ AccessToken: tokenLifeSeconds, AuthorizationCode: 60, IdToken: 60, RefreshToken: 3_600 },
      ...{ Grant: 3_600, Interaction: 600, Session: 3_600 },
    },
    features: {
      devInteractions: { enabled: true },
      revocation: { enabled: true, allowedPolicy: () => true },
      introspection: { enabled: true, allowedPolicy: () => true },
    },
    pkce: { required: () => true },
    rotateRefreshToken: true,
    issueRefreshToken: (_ctx: unknown, client: { grantTypeAllowed(type: string): boolean }) =>
      client.grantTypeAllowed('refresh_token'),
    findAccount: (_ctx: unknown, id: string) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  })
  const tokenRequests: TokenRequest[] = []
  const note = ({ oidc: { params = {} }, body }: GrantContext, granted: boolean): void => {
    const answer = granted ? (body as unknown as TokenRequest['granted']) : null
    tokenRequests.push({ grantType: String(params.grant_type), params: { ...params }, granted: answer })
  }
  provider.on('grant.success', (ctx) => note(ctx, true))
  provider.on('grant.error', (ctx) => note(ctx, false))
  server.on('request', provider.callback())

  const credentials = { client_id: CLIENT_ID, client_secret: clientSecret }
  const post = async (path: string, form: Record<string, string>) => {
    const body = new URLSearchParams({ ...form, ...credentials })
    const response = await fetch(issuer + path, { method: 'POST', body })
    return { status: response.status, body: (await response.json()) as Record<string, unknown> }
  }

  return {
    issuer,
    /** The environment variables of a server that uses it, client credentials included. */
    env: {
      AUTH_URL: issuer,
      OAUTH_AUTHORIZE_URL: `${issuer}/auth`,
      OAUTH_TOKEN_URL: `${issuer}/token`,
      OAUTH_REVOCATION_URL: `${issuer}/token/revocation`,
      OAUTH_ISSUER: issuer,
      OAUTH_REDIRECT: 'fixed',
      OAUTH_SCOPE: 'platform',
      CLIENT_ID,
      CLIENT_SECRET: clientSecret,
    },
    /** Oldest first. */
    tokenRequests,
    /** Whether the provider considers this token valid (RFC 7662). */
    isActive: async (token: string) => (await post('/token/introspection', { token })).body.active === true,
    /** Sends a form to the token endpoint as the client. */
    askForTokens: (form: Record<string, string>) => post('/token', form),
    /** Completes the pages of the provider like a user. Returns the URL of the redirect back. */
    decide: (authorizeUrl: string) => walk(issuer, authorizeUrl),
  }
}

const MOST_PAGES = 12

/** Follows redirects and submits forms until a URL is outside the provider. */
async function walk(issuer: string, start: string): Promise<string> {
  const jar = new Map<string, string>()
  const visit = async (url: string, form?: Record<string, string>): Promise<Response> => {
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ')
    const sent = form === undefined ? {} : { method: 'POST', body: new URLSearchParams(form) }
    const response = await fetch(url, { ...sent, headers: { cookie }, redirect: 'manual' })
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
      if (value === '') jar.delete(name)
      else jar.set(name, value)
    }
    return response
  }

  let response = await visit(start)
  for (let pages = 0; pages < MOST_PAGES; pages += 1) {
    const location = response.headers.get('location')
    const text = await response.text()
    if (location !== null) {
      const next = new URL(location, issuer).href
      if (!next.startsWith(`${issuer}/`)) return next
      response = await visit(next)
      continue
    }
    const prompt = /name="prompt" value="(\w+)"/.exec(text)?.[1]
    const action = /<form[^>]* action="([^"]+)"/.exec(text)?.[1]
    if (prompt === undefined || action === undefined) {
      throw new Error(`the provider responded without a form: ${response.status}: ${text}`)
    }
    response = await visit(action, { prompt, login: 'alice', password: 'wonderland' })
  }
  throw new Error('the pages of the provider do not redirect back')
}

/** Hides the provider's warnings that this setup, with the keys of its examples, is not for production. */
function createQuietly(issuer: string, configuration: object): Provider {
  const { warn } = console
  console.warn = () => {}
  try {
    return new Provider(issuer, configuration)
  } finally {
    console.warn = warn
  }
}
