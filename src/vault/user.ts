import type { Secret } from '../secret.ts'

/** Who has signed in, as the platform says. It permits nothing. */
export interface User {
  readonly id: string
  readonly name: string | null
}

/** Asks the platform whose access token this is. `unknown`: it gave no usable answer. Never rejects. */
export type Identify = (
  accessToken: Secret,
  requestId: string,
) => Promise<{ kind: 'user'; user: User } | { kind: 'unknown'; reason: string }>
