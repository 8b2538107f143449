import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { ScriptName } from '../../../src/vault/store/redis/scripts.ts'

/** The SHA-1 by which EVALSHA names a script of the store. */
export function scriptSha(name: ScriptName): string {
  const lua = readFileSync(new URL(`../../../src/vault/store/redis/lua/${name}.lua`, import.meta.url))
  return createHash('sha1').update(lua).digest('hex')
}
