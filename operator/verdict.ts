import { inAscii } from './in-ascii.ts'

/** The result of one check. `fault`: the deployment is broken; `warning`: users can come, but look at it. */
export interface Verdict {
  readonly check: string
  readonly verdict: 'ok' | 'warning' | 'fault'
  /** What was found and, unless it is ok, what to do. Holds no secret, and nothing that controls a terminal. */
  readonly message: string
}

/** The check found what the server needs. */
export function ok(check: string, message: string): Verdict {
  return { check, verdict: 'ok', message: inAscii(message) }
}

/** The check found something to look at. */
export function warning(check: string, message: string): Verdict {
  return { check, verdict: 'warning', message: inAscii(message) }
}

/** The check found why sign-in or calls fail. */
export function fault(check: string, message: string): Verdict {
  return { check, verdict: 'fault', message: inAscii(message) }
}
