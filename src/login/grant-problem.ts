import type { Problem } from '../errors.ts'
import { problem, unavailable } from '../errors.ts'
import type { TokenOutcome } from '../oauth/token-response.ts'

const RETRY_AFTER_SECONDS = 5

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
  if (outcome.kind === 'in_doubt' && !saysUnavailable(outcome.failedStatus)) {
    return problem('upstream_unavailable', { members })
  }
  const seconds = outcome.kind === 'unavailable' ? outcome.retryAfterSeconds : null
  return unavailable('authorization_server_unavailable', seconds ?? RETRY_AFTER_SECONDS, undefined, members)
}

/** 502 and 504 come from a gateway that got no usable answer; the others from the server itself. */
function saysUnavailable(status: number | undefined): boolean {
  return status === 500 || status === 501 || status === 503
}
