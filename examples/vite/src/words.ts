import type { Session } from '../../../client/bff-client.ts'

const ENDED = {
  logout: 'You have signed out.',
  idle: 'You were signed out because the page was not used.',
  absolute: 'You were signed out because the sign-in was too long ago.',
  refused: 'The platform asks you to sign in again.',
  replaced: 'You have signed in again elsewhere.',
  operator: 'An operator has ended your session.',
}

/** The session in one sentence. */
export function describe(session: Session): string {
  if (session.authenticated) {
    const { idleExpiresAt, expiresAt } = session
    const ends = idleExpiresAt < expiresAt ? idleExpiresAt : expiresAt
    return `Signed in until ${new Date(ends).toLocaleTimeString()}`
  }
  return session.ended ? ENDED[session.ended.reason] : 'Not signed in'
}

/** Why a sign-in failed, in one sentence: the word that `cameBack` returned. */
export function describeSignInError(error: string): string {
  return error === 'access_denied'
    ? 'You are not signed in: you refused the access.'
    : 'You are not signed in: the platform failed. Try again.'
}
