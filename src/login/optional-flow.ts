import type { FastifyInstance } from 'fastify'
import type { SessionFlow } from '../config/variables.ts'
import type { LoginContext } from './context.ts'

/**
 * A flow besides `code`, served only if `OAUTH_FLOWS` names it. A new one is a file of this folder, its name in
 * config/variables.ts, and its place in routes.ts. callback.ts hands a callback without a query to the token flow.
 */
export interface OptionalFlow {
  name: SessionFlow
  /** Adds its routes, all below `/auth`, to a scope that has browser sessions and JSON bodies. */
  addRoutes(scope: FastifyInstance, context: LoginContext): void
}

/** The longest body of a flow: a few members, of which a token may be long. */
export const BODY_LIMIT_BYTES = 16_384
