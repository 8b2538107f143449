import type { RecordKey, SessionRecord } from '../store/store.ts'

const BEYOND_ASCII = /[^\x20-\x7e]/g

/** One session as `list` shows it: no token, no cookie. */
export function describeSession(key: RecordKey, record: SessionRecord, json: boolean): string {
  const { flow, client, gen, createdAt, seenAt, idleEndsAt, endsAt } = record
  // Whoever can write to Redis shall not write to the operator's terminal.
  if (!json) {
    const parts = [key, iso(createdAt), iso(seenAt), iso(idleEndsAt), flow, gen, client]
    return parts.join('  ').replace(BEYOND_ASCII, '?')
  }
  const text = JSON.stringify({
    id: key,
    createdAt: iso(createdAt),
    lastSeenAt: iso(seenAt),
    idleExpiresAt: iso(idleEndsAt),
    expiresAt: iso(endsAt),
    flow,
    client,
    generation: gen,
  })
  return text.replace(BEYOND_ASCII, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

function iso(epochMs: number): string {
  const at = new Date(epochMs)
  return Number.isNaN(at.getTime()) ? 'unknown' : at.toISOString()
}
