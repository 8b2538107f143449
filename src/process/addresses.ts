import { setDefaultAutoSelectFamilyAttemptTimeout } from 'node:net'

/** For a round trip of 400 ms, or a lost packet, which is sent again after a second. */
const ATTEMPT_MS = 1_250

/**
 * From now on each address of a name that has several is tried for this long. Node's 250 ms (Happy Eyeballs, RFC 8305
 * section 5) end the attempt instead of beginning the next beside it, so that a far address would never be reached.
 */
export function allowSlowAddresses(): void {
  setDefaultAutoSelectFamilyAttemptTimeout(ATTEMPT_MS)
}
