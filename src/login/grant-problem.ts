import type { Problem } from '../errors.ts'
import { problem, unavailable } from '../errors.ts'
import type { TokenOutcome } from '../oauth/outcome.ts'

/**
 * What to answer where a sign-in got no tokens; `refused` is for a grant that the authorization server
 * says no to. `members` go into every answer.
 */
export function grantProblem(
  outcome: Exclude<TokenOutcome, { kind: 'granted' }>,
  refused: () => Problem,
  members: Record<string, string> = {},
): Problem {
  if (outcome.kind === 'refused') return refused()
  if (outcome.timedOut) return problem('upstream_timeout', { members })
  if (outcome.kind === 'in_doubt') return problem('upstream_unavailable', { members })
  return unavailable('authorization_server_unavailable', outcome.retryAfterSeconds ?? 5, undefined, members)
}

/** The reason of such an outcome, for the log. */
export function reasonOf(outcome: Exclude<TokenOutcome, { kind: 'granted' }>): string {
  return outcome.kind === 'refused' ? outcome.error : outcome.reason
}
