import type { Clock } from '../clock.ts'
import type { SessionFlow } from '../config/variables.ts'
import type { Logger } from '../log.ts'
import { type GrantedTokens, LARGE_TOKEN_BYTES } from '../oauth/token-response.ts'
import { CLOCK_TOLERANCE_MS, type StoreFinding } from '../vault/vault.ts'

/** Faults of the deployment that do not stop the server: each is logged once and shown by `/readyz`. */
interface DeploymentWarnings {
  /** For `onFinding` of the store. */
  store(finding: StoreFinding): void
  /** For `onDate` of the authorization server: its clock in epoch milliseconds, and how long the request took. */
  platformDate(date: number, elapsedMs: number): void
  /** Compares the tokens of a sign-in with what this server is configured for. */
  signedIn(flow: SessionFlow, granted: GrantedTokens): void
  /** All so far, one sentence each. */
  texts(): readonly string[]
}

/** Longest text of the platform in a line. */
const MAX_SCOPE = 200

function hostOf(address: string): string | null {
  return URL.canParse(address) ? new URL(address).hostname : null
}

/** Scopes that were asked for and not granted; their order does not matter (RFC 6749 section 3.3). */
function missingScopes(asked: string, granted: string): string[] {
  const words = new Set(granted.split(' '))
  return asked.split(' ').filter((scope) => !words.has(scope))
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
  const warned = new Set<string>()

  function warnOnce(members: { event: string; [member: string]: unknown }, text: string): void {
    if (warned.has(members.event)) return
    warned.add(members.event)
    warn(members, text)
  }

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
    signedIn(flow, granted) {
      const host = hostOf(granted.callback ?? '')
      if (host !== null && host !== hostOf(publicUrl)) {
        warnOnce(
          { event: 'platform.callback_differs', host },
          'the callback that is registered for CLIENT_ID is on another host than PUBLIC_URL, so the platform may refuse sign-ins: use credentials that are registered for this host',
        )
      }
      const missing = granted.scope === null ? [] : missingScopes(scope, granted.scope)
      if (missing.length > 0) {
        warnOnce(
          {
            event: 'platform.scope_differs',
            missing: missing.join(' ').slice(0, MAX_SCOPE),
            granted: granted.scope?.slice(0, MAX_SCOPE),
          },
          'the platform did not grant all scopes of OAUTH_SCOPE, so it may refuse calls (upstream_refused): check OAUTH_SCOPE and BASE_URL',
        )
      }
      // The token flow never brings one (service document, section 5.4).
      if (granted.refreshToken === null && flow !== 'token') {
        warnOnce(
          { event: 'login.no_refresh_token', asked: scope, granted: granted.scope?.slice(0, MAX_SCOPE) },
          'a sign-in brought no refresh token, so sessions end with their access tokens: servers tie it to a scope (offline_access or offline in OAUTH_SCOPE, which some grant only with OAUTH_AUTHORIZE_PARAMS=prompt=consent) or to the grant refresh_token of this client (docs/servers.md)',
        )
      }
      const bytes = granted.accessToken.reveal().length
      if (bytes > LARGE_TOKEN_BYTES) {
        warnOnce(
          { event: 'platform.large_token', bytes },
          'the access token is so large that a reverse proxy in front of the resource server may refuse the call (nginx: 8 KB a header line): let the platform put less into it, or raise the limit there',
        )
      }
    },
    texts: () => texts,
  }
}
