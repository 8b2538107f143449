/** The part of oidc-provider 9 that the tests use; the package brings no types. */
declare module 'oidc-provider' {
  import type { IncomingMessage, ServerResponse } from 'node:http'

  export interface ClientMetadata {
    client_id: string
    client_secret: string
    redirect_uris: string[]
    grant_types: string[]
    response_types: string[]
    token_endpoint_auth_method: 'client_secret_post'
    scope?: string
  }

  interface Client {
    grantTypeAllowed(grantType: string): boolean
  }

  export interface Configuration {
    clients: ClientMetadata[]
    scopes: string[]
    cookies: { keys: string[] }
    jwks: { keys: object[] }
    ttl: Record<string, number>
    features: Record<string, { enabled: boolean; allowedPolicy?: () => boolean }>
    pkce: { required: () => boolean }
    rotateRefreshToken: boolean
    issueRefreshToken: (ctx: unknown, client: Client) => boolean
    findAccount: (ctx: unknown, id: string) => { accountId: string; claims: () => Promise<{ sub: string }> }
  }

  /** The argument of token endpoint events. */
  export interface GrantContext {
    body: Record<string, unknown>
    oidc: { params?: Record<string, unknown> }
  }

  export default class Provider {
    constructor(issuer: string, configuration: Configuration)
    on(event: 'grant.success' | 'grant.error', listener: (ctx: GrantContext, error?: Error) => void): this
    callback(): (request: IncomingMessage, response: ServerResponse) => void
  }
}
