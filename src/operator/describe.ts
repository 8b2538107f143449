import { idleEndsAt } from '../store/limits.ts'
import type { RecordKey, SessionRecord } from '../store/port.ts'

/** One session for a reader, without anything that opens something. `idleMs` is the idle limit. */
export function describeSession(
  key: RecordKey,
  record: SessionRecord,
  idleMs: number,
  json: boolean,
): string {
  const { flow, client, gen, createdAt, seenAt, endsAt } = record
  const idleAt = idleEndsAt(record, idleMs)
  if (!json) {
    const parts = [key, iso(createdAt), iso(seenAt), iso(idleAt), flow, gen, client]
    // Whoever can write to Redis shall not write to the operator's terminal.
    return parts.join('  ').replace(/[^\x20-\x7e]/g, '?')
  }
  return JSON.stringify({
    id: key,
    createdAt: iso(createdAt),
    lastSeenAt: iso(seenAt),
    idleExpiresAt: iso(idleAt),
    expiresAt: iso(endsAt),
    flow,
    client,
    generation: gen,
  })
}

function iso(epochMs: number): string {
  const at = new Date(epochMs)
  return Number.isNaN(at.getTime()) ? 'unknown' : at.toISOString()
}
