import { readMembers } from './json.ts'

/** The content of `/auth/session` for a signed-in user. Instants are in milliseconds since 1970. */
export interface LiveSession {
  flow: string
  createdAt: number
  idleExpiresAt: number
  expiresAt: number
  accessTokenExpiresAt: number
  refreshable: boolean
  /** The default account code, `null` where the server has none. */
  wac: string | null
}

/** `null`: no user is signed in. */
export type Session = LiveSession | null

/** What happened between two looks at the session. */
export type SessionEvent = 'signed_in' | 'replaced' | 'refreshed' | 'extended' | 'ended'

/** The session in the body of `/auth/session`; `undefined` if the body has another form. */
export function readSession(text: string): Session | undefined {
  const body = readMembers(text)
  if (body.authenticated === false) return null
  const instant = (name: string): number => Date.parse(String(body[name]))
  const session = {
    flow: String(body.flow),
    createdAt: instant('createdAt'),
    idleExpiresAt: instant('idleExpiresAt'),
    expiresAt: instant('expiresAt'),
    accessTokenExpiresAt: instant('accessTokenExpiresAt'),
    refreshable: body.refreshable === true,
    wac: typeof body.wac === 'string' ? body.wac : null,
  }
  const complete = body.authenticated === true && !Object.values(session).some(Number.isNaN)
  return complete ? session : undefined
}

/** What happened between two looks, oldest first. */
export function compareSessions(before: Session, after: Session): SessionEvent[] {
  if (before === null) return after === null ? [] : ['signed_in']
  if (after === null) return ['ended']
  if (after.createdAt !== before.createdAt) return ['replaced']
  const events: SessionEvent[] = []
  if (after.accessTokenExpiresAt > before.accessTokenExpiresAt) events.push('refreshed')
  if (after.idleExpiresAt > before.idleExpiresAt) events.push('extended')
  return events
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
