export interface BreakerOptions {
  now: () => number
  /** Bounds a token request while all is well. */
  timeoutMs: number
  /** In [0, 1). */
  random: () => number
  /** Told with each change; `failures` counts consecutive ones. */
  onChange: (open: boolean, failures: number) => void
}

export type Admission =
  /** Send it, within this time, and report what came of it; `release` in any case. */
  | {
      kind: 'go'
      timeoutMs: number
      report: (answered: boolean, retryAfterMs: number | null) => void
      release: () => void
    }
  | { kind: 'wait'; retryInMs: number }

export interface Breaker {
  admit(): Admission
  /** How many of `wanted` requests would be let through now. */
  room(wanted: number): number
  failures(): number
}

const OPENS_AFTER = 3
/** With the probe's own time this keeps "it is back" within five seconds. */
const MAX_PAUSE_MS = 2_000
const PROBE_TIMEOUT_MS = 2_500
/** An answer may have become slow: every third probe is given its whole time. */
const PATIENT_PROBE_EVERY = 3

/**
 * Stands in front of the token endpoint, one a process. After consecutive failures it lets one
 * request through at a time, so that an outage is neither hammered nor waited for by every caller.
 */
export function createBreaker({ now, timeoutMs, random, onChange }: BreakerOptions): Breaker {
  let failures = 0
  let probes = 0
  let probing = false
  let nextProbeAt = 0

  function report(answered: boolean, retryAfterMs: number | null): void {
    if (answered) {
      if (failures >= OPENS_AFTER) onChange(false, 0)
      failures = 0
      probes = 0
      return
    }
    failures += 1
    const pause = retryAfterMs ?? Math.min(MAX_PAUSE_MS, 250 * 2 ** Math.min(failures - OPENS_AFTER, 4))
    nextProbeAt = now() + pause * (1 + random() / 4)
    if (failures === OPENS_AFTER) onChange(true, failures)
  }

  function admit(): Admission {
    const probe = failures >= OPENS_AFTER
    if (probe && (probing || now() < nextProbeAt)) {
      return { kind: 'wait', retryInMs: Math.max(500, nextProbeAt - now()) }
    }
    let timeout = timeoutMs
    if (probe) {
      probing = true
      probes += 1
      if (probes % PATIENT_PROBE_EVERY !== 0) timeout = Math.min(timeoutMs, PROBE_TIMEOUT_MS)
    }
    return {
      kind: 'go',
      timeoutMs: timeout,
      report,
      release() {
        if (probe) probing = false
      },
    }
  }

  function room(wanted: number): number {
    if (failures < OPENS_AFTER) return wanted
    return probing || now() < nextProbeAt ? 0 : Math.min(1, wanted)
  }

  return { admit, room, failures: () => failures }
}
