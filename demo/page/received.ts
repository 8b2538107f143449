/** A request as the sandbox received it; tokens are numbers. `sandbox/stage.ts` writes it. */
export interface Received {
  seq: number
  /** Epoch milliseconds. */
  at: number
  endpoint: 'authorize' | 'token' | 'revoke' | 'resource' | 'unknown'
  kind: string | null
  method: string
  path: string
  outcome: string | null
  /** null where the sandbox sent no complete response. */
  status: number | null
  fault: string | null
  presented: number | null
  issued: number | null
  /** Which request of the page led to it; null: none did. */
  span: string | null
}

/** One sentence. */
interface RefreshStatus {
  tone: 'good' | 'warn'
  text: string
}

/**
 * What became of the newest refresh; null while the page knows no token.
 *
 * @param held number of the access token that the server holds, 0 if it is unknown
 * @param replaced number of the token before it, 0 if there was none
 */
export function refreshStatus(
  received: readonly Received[],
  { held, replaced }: { held: number; replaced: number },
): RefreshStatus | null {
  if (held === 0) return null
  const newest = received.findLast(({ endpoint, kind }) => endpoint === 'token' && kind === 'refresh_token')
  if (newest !== undefined && newest.status !== 200) return { tone: 'warn', text: describeFailure(newest) }
  const text =
    replaced === 0
      ? `Wait: the server replaces access token #${held} before it expires.`
      : `The server replaced access token #${replaced} by #${held}. This browser took no part.`
  return { tone: 'good', text }
}

function describeFailure({ status, fault, issued }: Received): string {
  if (status === null && fault === null) {
    return 'The server asks for a new token. The platform has not answered yet.'
  }
  if (status === null && issued !== null) {
    return `The platform issued token #${issued}, but its answer got lost. The server tries again.`
  }
  if (status === 400) return 'The platform refuses a new token (400).'
  return `The platform gives no new token (${status ?? 'no answer'}). The server tries again.`
}
