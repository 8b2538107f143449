/** The part of oidc-provider 9 that the tests use; the package brings no types. */
declare module 'oidc-provider' {
  import type { IncomingMessage, ServerResponse } from 'node:http'

  /** The argument of token endpoint events. */
  export interface GrantContext {
    body: Record<string, unknown>
    oidc: { params?: Record<string, unknown> }
  }

  export default class Provider {
    constructor(issuer: string, configuration: object)
    on(event: 'grant.success' | 'grant.error', listener: (ctx: GrantContext) => void): this
    callback(): (request: IncomingMessage, response: ServerResponse) => void
  }
}
