/** The members of a session that tell what happened to it. Times are ISO 8601. */
interface Look {
  sessionId: string
  accessTokenExpiresAt: string
  idleExpiresAt: string
}

/** What happened between two looks at the session. */
export type SessionEvent = 'signed_in' | 'replaced' | 'refreshed' | 'extended' | 'signed_out' | 'ended'

/** What happened between two looks, oldest first. `null`: nobody is signed in. `reason`: why the session ended, if that is told. */
export function compareSessions(before: Look | null, after: Look | null, reason?: string): SessionEvent[] {
  if (before === null) return after === null ? [] : ['signed_in']
  if (after === null) return [reason === undefined || reason === 'logout' ? 'signed_out' : 'ended']
  if (after.sessionId !== before.sessionId) return ['replaced']
  const events: SessionEvent[] = []
  const later = (name: 'accessTokenExpiresAt' | 'idleExpiresAt') =>
    Date.parse(after[name]) > Date.parse(before[name])
  if (later('accessTokenExpiresAt')) events.push('refreshed')
  if (later('idleExpiresAt')) events.push('extended')
  return events
}

const ENDINGS: Record<string, string> = {
  logout: 'You signed out in this browser.',
  idle: 'The page was not used for too long.',
  absolute: 'It has reached its maximum duration.',
  refused: 'The platform no longer accepts its tokens: the access was withdrawn.',
  replaced: 'You signed in again.',
  operator: 'An operator ended the session.',
  device: 'It is bound to another device.',
}

/** Why a session ended, in a sentence. */
export function endingText(reason: string | undefined): string {
  return ENDINGS[reason ?? ''] ?? 'The session is over.'
}

const SIGN_IN_FAILURES: Record<string, string> = {
  access_denied: 'You refused access. You can try again at any time.',
  server_error: 'The platform failed. Please try again.',
  temporarily_unavailable: 'The platform is busy. Please try again in a moment.',
}

/** Why a sign-in failed, in a sentence. An unknown error is not repeated. */
export function signInFailureText(error: string): string {
  return Object.hasOwn(SIGN_IN_FAILURES, error)
    ? SIGN_IN_FAILURES[error]!
    : 'The sign-in did not succeed. Please try again.'
}

/** A time span in words, exact to the second below an hour. */
export function formatSpan(milliseconds: number): string {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000))
  const minutes = Math.floor(seconds / 60)
  const hours = Math.floor(minutes / 60)
  const two = (number: number): string => String(number).padStart(2, '0')
  if (hours > 0) return `${hours} h ${two(minutes % 60)} min`
  if (minutes > 0) return `${minutes} min ${two(seconds % 60)} s`
  return `${seconds} s`
}
