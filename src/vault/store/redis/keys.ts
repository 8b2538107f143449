import { createHash } from 'node:crypto'
import type { RecordKey } from '../record.ts'

/** Every Redis key that the store uses. */
export interface RedisKeys {
  /** A text: the facts of a record, then its sealed tokens. A record of version 0.2 is a hash. */
  record(key: RecordKey): string
  /** A text: why and when a session ended. In the slot of the record: one script writes both. */
  end(key: RecordKey): string
  /** A text: the attempt that claimed the nonce. */
  nonce(nonce: string): string
  /** A text: how many tries of this bucket there were in its window. */
  tries(bucket: string): string
  /** A sorted set: the due queue, in a Cluster in one slot. Version 0.2 had 16 with other names. */
  readonly due: string
  /** A text that is written to see whether the server takes writes. */
  readonly ping: string
}

export function createRedisKeys(prefix: string): RedisKeys {
  const record = (key: RecordKey): string => `${prefix}s:${key}`
  return {
    record,
    end: (key) => `${prefix}e:{${record(key)}}`,
    nonce: (nonce) => `${prefix}n:${createHash('sha256').update(nonce).digest('base64url')}`,
    tries: (bucket) => `${prefix}r:${bucket}`,
    due: `${prefix}due`,
    ping: `${prefix}ping`,
  }
}
