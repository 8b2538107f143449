import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import type { GrantedTokens } from '../oauth/token-response.ts'
import { CLOCK_TOLERANCE_MS } from '../vault/store/record.ts'
import type { StoreFinding } from '../vault/store/redis/deployment-findings.ts'

/** Faults of the deployment that do not stop the server: each is logged once and shown by `/readyz`. */
interface DeploymentWarnings {
  /** For `onFinding` of the store. */
  store(finding: StoreFinding): void
  /** For `onDate` of the authorization server: its clock in epoch milliseconds, and how long the request took. */
  platformDate(date: number, elapsedMs: number): void
  /** Judges the tokens of a sign-in: the first ones by what this server is configured for, each by its length. */
  signedIn(granted: Pick<GrantedTokens, 'accessToken' | 'scope' | 'callback'>): void
  /** All so far, one sentence each. */
  texts(): readonly string[]
}

/** Longest text of the platform in a line. */
const MAX_SCOPE = 200
/** nginx refuses a header line of 8 KB, and the token is not all of its line. */
const LARGE_TOKEN_BYTES = 7_168

function hostOf(address: string): string | null {
  return URL.canParse(address) ? new URL(address).hostname : null
}

/** RFC 6749 section 3.3: the order of scopes does not matter. */
function isSameScope(one: string, other: string): boolean {
  const words = (scope: string) => [...new Set(scope.split(' '))].sort().join(' ')
  return words(one) === words(other)
}

/** Collects the findings of the store and of the authorization server. */
export function createDeploymentWarnings({
  log,
  clock,
  publicUrl,
  scope,
}: {
  log: Logger
  clock: Pick<Clock, 'wall'>
  publicUrl: string
  /** What is asked for. */
  scope: string
}): DeploymentWarnings {
  const texts: string[] = []
  let platformChecked = false
  let tokensChecked = false
  let lengthWarned = false

  function warn(members: { event: string; [member: string]: unknown }, text: string): void {
    texts.push(text)
    log.warn(members, text)
  }

  function warnOfClock(aheadMs: number, of: string): void {
    const seconds = Math.round(Math.abs(aheadMs) / 1_000)
    const text = `the clock of this process is ${seconds} s ${aheadMs > 0 ? 'ahead of' : 'behind'} that of ${of}: synchronize both by NTP`
    warn({ event: 'clock.differs', of, aheadMs: Math.round(aheadMs) }, text)
  }

  function warnOfLength(bytes: number): void {
    if (lengthWarned || bytes <= LARGE_TOKEN_BYTES) return
    lengthWarned = true
    const text =
      'the access token is longer than 7 KB, and many servers refuse a header line of 8 KB without a word: ask for fewer claims or scopes, or raise that limit at the resource server (nginx: large_client_header_buffers)'
    warn({ event: 'platform.large_token', bytes }, text)
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
    signedIn(granted) {
      warnOfLength(granted.accessToken.reveal().length)
      if (tokensChecked) return
      tokensChecked = true
      const host = hostOf(granted.callback ?? '')
      if (host !== null && host !== hostOf(publicUrl)) {
        const text =
          'the callback that is registered for CLIENT_ID is on another host than PUBLIC_URL, so the platform may refuse sign-ins: use credentials that are registered for this host'
        warn({ event: 'platform.callback_differs', host }, text)
      }
      if (granted.scope !== null && !isSameScope(granted.scope, scope)) {
        const text =
          'the platform granted another scope than OAUTH_SCOPE asks for, so it may refuse calls (upstream_refused): check OAUTH_SCOPE and BASE_URL'
        warn({ event: 'platform.scope_differs', granted: granted.scope.slice(0, MAX_SCOPE) }, text)
      }
    },
    texts: () => texts,
  }
}
