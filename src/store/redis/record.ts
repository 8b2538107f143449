import { idleEndsAt, type SessionRecord } from '../store.ts'

/** The fields of the record's hash that are read, in this order. */
export const FIELDS = [
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
export function toRecord([sealed, ...values]: (Buffer | null)[], idleMs: number): SessionRecord | null {
  const [gen, createdAt, seenAt, endsAt, flow, client, doubts, leaseUntil, retryAt, replacedAt] = values.map(
    (value) => value?.toString(),
  )
  if (sealed == null || gen === undefined) return null
  return {
    tokens: sealed.toString('latin1'),
    gen: Number(gen),
    createdAt: Number(createdAt),
    seenAt: Number(seenAt),
    idleEndsAt: idleEndsAt({ seenAt: Number(seenAt), endsAt: Number(endsAt) }, idleMs),
    endsAt: Number(endsAt),
    flow: flow as SessionRecord['flow'],
    client: client ?? '',
    doubts: Number(doubts ?? 0),
    leaseUntil: Number(leaseUntil ?? 0),
    retryAt: Number(retryAt ?? 0),
    replacedAt: Number(replacedAt ?? 0),
  }
}
