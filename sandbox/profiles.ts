import type { Faults } from './faults.ts'

/** Plausible readings of the service's document, each as the switches that differ from the sandbox without a profile. */
export const PROFILES: Readonly<Record<string, Partial<Faults>>> = {
  /** Everything ends early, and an invalid token has a code of the platform's own. */
  strict: { rotateAccess: true, refreshReuse: 'revoke', invalidToken: 'code400', expiresIn: 'absent' },
  /** PUT replaces: an absent member loses its value. */
  replace: { absentMembers: 'clear', invalidToken: 'bare401' },
  /** "A token is unique for one user and one client." */
  'one-grant': { oneGrantPerUser: true },
  /** A refresh leaves the refresh token as it is. */
  'no-rotation': { sameRefreshToken: true, refreshReuse: 'allow' },
  /** What is sent comes back: `state`. */
  echo: { state: 'echo', invalidToken: 'json400' },
}
