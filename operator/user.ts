import { createKeyring } from '../src/keyring.ts'
import { openTokens, type RecordKey, type SessionRecord } from '../src/vault/vault.ts'
import type { CommandOptions, Terminal } from './cli.ts'
import { distinct } from './scan.ts'

/** What a scan for one user has seen. */
interface Seen {
  sessions: number
  /** Sealed under a secret that is not in `SESSION_SECRET`: whose they are is not known. */
  unreadable: number
  /** The platform did not say at the sign-in whose they are. */
  unknown: number
}

/** Nothing seen yet. */
export function nothingSeen(): Seen {
  return { sessions: 0, unreadable: 0, unknown: 0 }
}

/** The sessions of one user, by the whole id that the platform gave at the sign-in. Counts them into `seen`. */
export async function* sessionsOf(
  user: string,
  { store, config }: Pick<CommandOptions, 'store' | 'config'>,
  seen: Seen,
): AsyncGenerator<{ key: RecordKey; record: SessionRecord }, void> {
  const keyring = createKeyring(config.sessionSecrets)
  for await (const keys of distinct(store)) {
    for (const [at, record] of (await Promise.all(keys.map(store.read))).entries()) {
      if (record === null) continue
      const key = keys[at]!
      const opened = openTokens(keyring, key, record.tokens)
      if (opened === null) seen.unreadable += 1
      else if (!opened.tokens.user) seen.unknown += 1
      else if (opened.tokens.user.id === user) {
        seen.sessions += 1
        yield { key, record }
      }
    }
  }
}

/**
 * Says what was not found, not readable or of no known user. Returns whether the user was found and no other session can
 * be theirs.
 */
export function reportUser(
  { terminal, config: { hasIdentity } }: { terminal: Terminal; config: { hasIdentity: boolean } },
  user: string,
  { sessions, unreadable, unknown }: Seen,
): boolean {
  if (!hasIdentity)
    terminal.warn(
      'OPERATIONS_FILE has no identity: a user is known only to sessions from a time when it had one.',
    )
  if (sessions === 0) terminal.warn(`There is no session of the user ${user}.`)
  if (unreadable > 0)
    terminal.warn(`${unreadable} sessions cannot be opened with SESSION_SECRET: they may be this user's.`)
  if (unknown > 0) terminal.warn(`${unknown} sessions have no known user: they may be this user's.`)
  return sessions > 0 && unreadable === 0 && unknown === 0
}
