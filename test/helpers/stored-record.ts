// What a session record in Redis says, for tests that look there themselves.

import { decodeFacts, type StoredRecord } from '../../src/vault/store/record.ts'
import type { RedisServer } from './redis.ts'

/** The record of this name on this node, without its tokens; null if there is none. */
export async function storedRecord(
  node: Pick<RedisServer, 'cli'>,
  name: string,
): Promise<StoredRecord | null> {
  const text = await node.cli('getrange', name, '0', '511')
  const end = text.indexOf('\n')
  return text[0] === '{' && end > 0 ? decodeFacts(text.slice(0, end), '') : null
}
