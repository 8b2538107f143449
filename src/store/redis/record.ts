import type { SessionRecord } from '../store.ts'

/** Of the record's hash, what is read of it, in this order. */
export const FIELDS = [
  'session',
  'tokens',
  'gen',
  'createdAt',
  'seenAt',
  'endsAt',
  'flow',
  'client',
  'doubts',
  'leaseUntil',
  'retryAt',
  'replacedAt',
] as const

/** A record from the values of `FIELDS`; null where there is none. */
export function toRecord(values: (string | null)[]): SessionRecord | null {
  const [
    session,
    tokens,
    gen,
    createdAt,
    seenAt,
    endsAt,
    flow,
    client,
    doubts,
    leaseUntil,
    retryAt,
    replacedAt,
  ] = values
  if (session == null || tokens == null || gen == null) return null
  return {
    session,
    tokens,
    gen: Number(gen),
    createdAt: Number(createdAt),
    seenAt: Number(seenAt),
    endsAt: Number(endsAt),
    flow: flow as SessionRecord['flow'],
    client: client ?? '',
    doubts: Number(doubts ?? 0),
    leaseUntil: Number(leaseUntil ?? 0),
    retryAt: Number(retryAt ?? 0),
    replacedAt: Number(replacedAt ?? 0),
  }
}
