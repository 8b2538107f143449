import { decodeFacts, type StoredRecord } from '../record.ts'
import type { Shown } from '../run.ts'

/**
 * Records of version 0.2, for one release (docs/decisions/0024): a hash with a field for each fact, and the tokens. It
 * stays one, which replicas of 0.2 can read, until a refresh brings other tokens. Facts that 0.2 does not know are not kept
 * until then: when a doubt began and what was answered, which is then not known, and a device, which only a sign-in with this
 * version announces.
 */

/** The fields that both versions know, as facts have them. */
const FIELDS = [
  'gen',
  'createdAt',
  'seenAt',
  'endsAt',
  'flow',
  'client',
  'replacedAt',
  'doubts',
  'lease',
  'leaseUntil',
  'leasedAt',
  'openUntil',
  'retryAt',
  'retrySetAt',
  'forcedAt',
  'forcedGen',
  'history',
] as const

const TEXTS: ReadonlySet<string> = new Set(['flow', 'client', 'lease', 'history'])

/** The record of a hash: its fields and values in turn, one byte a character. */
export function hashShown(flat: readonly string[], now: number): Shown {
  const values = new Map<string, string>()
  for (let at = 0; at < flat.length; at += 2) values.set(flat[at]!, flat[at + 1]!)
  if (!values.has('gen') || !values.has('tokens')) return { record: null, version: '', now }
  const facts = FIELDS.flatMap((name) => {
    const value = values.get(name)
    if (value === undefined) return []
    // The facts are read as bytes, and `client` may have other letters.
    return [[name, TEXTS.has(name) ? Buffer.from(value, 'latin1').toString() : Number(value)]]
  })
  const none = decodeFacts('{}', values.get('tokens')!)
  const record = { ...none, ...Object.fromEntries(facts) } as StoredRecord
  return { record, version: HASH + FIELDS.map((name) => values.get(name) ?? '').join('\n'), now }
}

/** Before the version of a hash. The facts of a text begin with a brace. */
const HASH = 'hash '

/** The version as the script compares it; null for a record that is no hash. */
export function hashVersion(version: string): Buffer | null {
  return version.startsWith(HASH) ? Buffer.from(version.slice(HASH.length), 'latin1') : null
}

/** The fields of a record that stays a hash, with their values in turn. */
export function hashFields(record: StoredRecord | null): string[] {
  return FIELDS.flatMap((name) => [name, record === null ? '' : String(record[name])])
}

/** The version that a hash has after it got these fields. */
export function hashVersionOf(record: StoredRecord): string {
  return HASH + FIELDS.map((name) => Buffer.from(String(record[name])).toString('latin1')).join('\n')
}
