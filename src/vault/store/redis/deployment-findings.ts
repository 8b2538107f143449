import { CLOCK_TOLERANCE_MS } from '../record.ts'
import { inTime } from './command-timeout.ts'
import { isErrorReply, mastersOf, type RedisClient, type RedisServer } from './connection.ts'
import { createRedisKeys } from './keys.ts'

/** What a server calls itself. Valkey also names the version of Redis that it began as. */
export interface RedisProduct {
  readonly name: string
  readonly version: string
}

/** One master as its own `INFO` and `TIME` describe it; null where they are not permitted. */
export interface RedisNode {
  readonly product: RedisProduct | null
  /** `maxmemory-policy`. */
  readonly eviction: string | null
  readonly appendOnly: boolean | null
  /** By how many milliseconds the clock of this process is ahead of the server's. */
  readonly clockAheadMs: number | null
}

/** A property of the deployment that will cause trouble. */
export type StoreFinding =
  | { kind: 'eviction'; policy: string }
  /** `aheadMs`: how far the clock of this process is ahead of Redis' own. */
  | { kind: 'clock'; aheadMs: number }
  /** `what`: a command, or the keys below the prefix. */
  | { kind: 'denied'; what: string }

/** What an error says that the ACL denies; null for any other error. */
function deniedBy(error: unknown, command: string): string | null {
  if (!(error instanceof Error) || !/\bNOPERM\b/.test(error.message)) return null
  if (/access .*key/i.test(error.message)) return 'keys below REDIS_PREFIX'
  return `command ${command}`
}

/**
 * Every command that the store and its scripts send, with arguments that change nothing: `ping` is a number that
 * nobody reads and that expires soon, so commands for other types fail, but only after the ACL was checked.
 */
export function harmlessCommands(prefix: string): [command: string, ...args: string[]][] {
  const key = createRedisKeys(prefix).ping
  return [
    ['SET', key, '1', 'PX', '10000'],
    ['GET', key],
    ['GETRANGE', key, '0', '0'],
    ['SETRANGE', key, '0', '1'],
    ['INCR', key],
    ['PTTL', key],
    ['PEXPIRE', key, '10000'],
    ['PEXPIREAT', key, String(Date.now() + 10_000)],
    ['HSET', key, 'a', '1'],
    ['HGET', key, 'a'],
    ['HGETALL', key],
    ['ZADD', key, 'XX', '0', 'a'],
    ['ZREM', key, 'a'],
    ['ZCOUNT', key, '0', '0'],
    ['ZSCORE', key, 'a'],
    ['ZRANGEBYSCORE', key, '0', '0'],
    ['DEL', `${prefix}none`],
    ['EVAL', 'return 1', '1', key],
    ['EVALSHA', '0'.repeat(40), '1', key],
    ['SCAN', '0', 'COUNT', '1'],
    ['INFO', 'memory'],
    ['TIME'],
  ]
}

/** Looks once for findings; the same one may be reported several times. Rejects where the connection fails. */
export async function reportFindings(
  client: RedisClient,
  prefix: string,
  report: (finding: StoreFinding) => void,
): Promise<void> {
  for (const [command, ...args] of harmlessCommands(prefix)) {
    try {
      await client.call(command, ...args)
    } catch (error) {
      const what = deniedBy(error, command)
      if (what !== null) report({ kind: 'denied', what })
    }
  }
  await Promise.all(mastersOf(client).map((server) => inspectServer(server, report)))
}

async function inspectServer(server: RedisServer, report: (finding: StoreFinding) => void): Promise<void> {
  const { eviction, clockAheadMs } = await describeNode(server, nullIfRefused)
  if (eviction !== null && eviction !== 'noeviction') report({ kind: 'eviction', policy: eviction })
  if (clockAheadMs !== null && Math.abs(clockAheadMs) > CLOCK_TOLERANCE_MS)
    report({ kind: 'clock', aheadMs: clockAheadMs })
}

/** Reads `INFO` and `TIME`; `onError` may throw, or return null for a part that stays unknown. */
export async function describeNode(node: RedisServer, onError: (error: unknown) => null): Promise<RedisNode> {
  const info = await inTime(node.info()).catch(onError)
  const field = (name: string): string | null =>
    new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info ?? '')?.[1] ?? null
  const before = Date.now()
  const time = await inTime(node.time()).catch(onError)
  const between = (before + Date.now()) / 2
  const appendOnly = field('aof_enabled')
  return {
    product: productOf(field),
    eviction: field('maxmemory_policy'),
    appendOnly: appendOnly === null ? null : appendOnly === '1',
    clockAheadMs:
      time === null ? null : Math.round(between - Number(time[0]) * 1_000 - Number(time[1]) / 1_000),
  }
}

function productOf(field: (name: string) => string | null): RedisProduct | null {
  const own = field('valkey_version')
  if (own !== null) return { name: 'Valkey', version: own }
  const version = field('redis_version')
  return version === null ? null : { name: 'Redis', version }
}

/** null if the server replies with an error; any other error is thrown. */
function nullIfRefused(error: unknown): null {
  if (isErrorReply(error)) return null
  throw error
}
