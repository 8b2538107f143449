import type { Authorizations } from './authorizations.ts'
import type { Journal, JournalEntry } from './journal.ts'

const SHOWN = 40

/** One request of the journal, without a secret: tokens are numbers, headers and bodies are left out. */
export interface StageEntry
  extends Pick<JournalEntry, 'seq' | 'at' | 'endpoint' | 'kind' | 'method' | 'path' | 'outcome' | 'status'> {
  /** Number of the access token that came with the request. */
  presented: number | null
  /** Number of the access token that the response carries. */
  issued: number | null
  fault: string | null
}

/** The newest requests, oldest first, in the form that the demo page may see. */
export function stageEntries(journal: Journal, authorizations: Authorizations): StageEntry[] {
  return journal
    .entries()
    .slice(-SHOWN)
    .map(({ seq, at, endpoint, kind, method, path, outcome, status, issued, fault, headers }) => {
      const bearer = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1] ?? ''
      const presented = authorizations.accessTokenNumber(bearer)
      return { seq, at, endpoint, kind, method, path, outcome, status, issued, fault, presented }
    })
}
