import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import type { StoreFinding } from '../store/redis/deployment-findings.ts'
import { CLOCK_TOLERANCE_MS } from '../store/store.ts'

/** Faults of the deployment that do not stop the server: each is logged once and shown by `/readyz`. */
interface DeploymentWarnings {
  /** For `onFinding` of the store. */
  store(finding: StoreFinding): void
  /** For `onDate` of the authorization server: its clock in epoch milliseconds, and how long the request took. */
  platformDate(date: number, elapsedMs: number): void
  /** All so far, one sentence each. */
  texts(): readonly string[]
}

/** Collects the findings of the store and of the authorization server. */
export function createDeploymentWarnings({
  log,
  clock,
}: {
  log: Logger
  clock: Pick<Clock, 'wall'>
}): DeploymentWarnings {
  const texts: string[] = []
  let platformChecked = false

  function warn(members: { event: string; [member: string]: unknown }, text: string): void {
    texts.push(text)
    log.warn(members, text)
  }

  function warnOfClock(aheadMs: number, of: string): void {
    const seconds = Math.round(Math.abs(aheadMs) / 1_000)
    const text = `the clock of this process is ${seconds} s ${aheadMs > 0 ? 'ahead of' : 'behind'} that of ${of}: synchronize both by NTP`
    warn({ event: 'clock.differs', of, aheadMs: Math.round(aheadMs) }, text)
  }

  return {
    store(finding) {
      switch (finding.kind) {
        case 'eviction': {
          const { policy } = finding
          const text = `Redis evicts keys (maxmemory-policy ${policy}), which signs users out: set noeviction`
          return warn({ event: 'store.evicts', policy }, text)
        }
        case 'clock':
          return warnOfClock(finding.aheadMs, 'Redis')
        case 'denied': {
          const { what } = finding
          const text = `the ACL of the Redis user denies ${what}: permit it (docs/configuration.md lists the rights)`
          return warn({ event: 'store.denied', what }, text)
        }
      }
    },
    platformDate(date, elapsedMs) {
      if (platformChecked) return
      const now = clock.wall()
      const sentAt = now - elapsedMs
      // The header has whole seconds, and a slow response may have been dated at any time since the request.
      const aheadMs = sentAt - date > CLOCK_TOLERANCE_MS + 1_000 ? sentAt - date : Math.min(0, now - date)
      if (Math.abs(aheadMs) <= CLOCK_TOLERANCE_MS) return
      platformChecked = true
      warnOfClock(aheadMs, 'the authorization server')
    },
    texts: () => texts,
  }
}
