import { bearerOf } from './access.ts'
import type { Authorization, Authorizations } from './authorizations.ts'
import type { Journal, JournalEntry } from './journal.ts'

/** More than the reads of a crowd, which the page sends at once. */
const SHOWN = 130

const SPAN = /^[0-9a-f]{2}-[0-9a-f]{32}-([0-9a-f]{16})-/

/** One request of the journal, without a secret: tokens are numbers, headers and bodies are left out. */
interface StageEntry
  extends Pick<JournalEntry, 'seq' | 'at' | 'endpoint' | 'kind' | 'method' | 'path' | 'outcome' | 'status'> {
  /** Number of the access token that came with the request. */
  presented: number | null
  /** Number of the access token that the response carries. */
  issued: number | null
  fault: string | null
  /** Span id of its `traceparent`: which request of the page led to it. null without one. */
  span: string | null
}

/** What the demo page may see: the requests of its own session, and of no other. */
export interface Stage {
  /** Number of access tokens issued to this session so far; 0 while the sandbox does not know it. */
  issued: number
  /** The newest requests, oldest first. */
  entries: StageEntry[]
}

/**
 * The stage of one session. The page puts the session's id into `traceparent`, as the trace id, and the server
 * forwards that header: so the sandbox learns which authorization is that session's.
 */
export function stageOf(sessionId: string, journal: Journal, authorizations: Authorizations): Stage {
  const entries = journal.entries()
  const traced = `-${sessionId.padStart(32, '0')}-`
  const own = entries.findLast(({ headers }) => String(headers.traceparent).includes(traced))
  const authorization = own === undefined ? null : authorizationOf(own, authorizations)
  if (authorization === null) return { issued: 0, entries: [] }
  return {
    issued: authorization.issued,
    entries: entries
      .filter((entry) => authorizationOf(entry, authorizations) === authorization)
      .slice(-SHOWN)
      .map((entry) => describe(entry, authorizations)),
  }
}

function describe(entry: JournalEntry, authorizations: Authorizations): StageEntry {
  const { seq, at, endpoint, kind, method, path, outcome, status, issued, fault } = entry
  const presented = authorizations.accessTokenNumber(accessTokenOf(entry))
  const span = SPAN.exec(String(entry.headers.traceparent))?.[1] ?? null
  return { seq, at, endpoint, kind, method, path, outcome, status, issued, fault, presented, span }
}

/** The authorization that a request presented a code or a token of. */
function authorizationOf(entry: JournalEntry, authorizations: Authorizations): Authorization | null {
  const { code, refresh_token, token } = entry.form ?? {}
  return authorizations.authorizationOf(String(code ?? refresh_token ?? token ?? accessTokenOf(entry)))
}

function accessTokenOf({ query, headers }: JournalEntry): string {
  return String(query.access_token ?? bearerOf(headers))
}
