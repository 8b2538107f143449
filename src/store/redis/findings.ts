import { Cluster, type Redis } from 'ioredis'
import type { RedisClient } from './health.ts'

/** A property of the deployment that makes trouble later. */
export type StoreFinding =
  | { kind: 'eviction'; policy: string }
  /** `aheadMs`: how far the clock of this process is ahead of Redis' own. */
  | { kind: 'clock'; aheadMs: number }
  /** `what`: a command, or the keys or channels below the prefix. */
  | { kind: 'denied'; what: string }

/** What an error says that the ACL denies; null for any other error. */
export function deniedBy(error: unknown, command: string): string | null {
  if (!(error instanceof Error) || !/\bNOPERM\b/.test(error.message)) return null
  if (/channel/i.test(error.message)) return 'channels below REDIS_PREFIX'
  if (/access .*key/i.test(error.message)) return 'keys below REDIS_PREFIX'
  return `command ${command}`
}

/**
 * Every command that the store and its scripts send, with arguments that change nothing: `ping` is a text that
 * expires soon, so commands for other types fail, but only after the ACL was checked.
 */
export function harmlessCommands(prefix: string): [command: string, ...args: string[]][] {
  const key = `${prefix}ping`
  return [
    ['SET', key, '1', 'PX', '10000'],
    ['GET', key],
    ['EXISTS', key],
    ['PEXPIRE', key, '10000'],
    ['PEXPIREAT', key, String(Date.now() + 10_000)],
    ['HSET', key, 'a', '1'],
    ['HGET', key, 'a'],
    ['HMGET', key, 'a'],
    ['ZADD', key, 'XX', '0', 'a'],
    ['ZREM', key, 'a'],
    ['ZCARD', key],
    ['ZRANGE', key, '0', '0'],
    ['ZRANGEBYSCORE', key, '0', '0'],
    ['DEL', `${prefix}none`],
    ['EVAL', 'return 1', '1', key],
    ['EVALSHA', '0'.repeat(40), '1', key],
    ['PUBLISH', `${prefix}beat:none`, ''],
    ['SCAN', '0', 'COUNT', '1'],
    ['INFO', 'memory'],
    ['TIME'],
  ]
}

const CLOCK_TOLERANCE_MS = 5_000

/** Looks once for findings; the same one may be reported several times. Rejects where the connection fails. */
export async function findFaults(
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
  const servers = client instanceof Cluster ? client.nodes('master') : [client]
  await Promise.all(servers.map((server) => inspectServer(server, report)))
}

async function inspectServer(server: Redis, report: (finding: StoreFinding) => void): Promise<void> {
  const info = await unlessRefused(server.info('memory'))
  const policy = /^maxmemory_policy:(\S+)/m.exec(info ?? '')?.[1] ?? 'noeviction'
  if (policy !== 'noeviction') report({ kind: 'eviction', policy })
  const before = Date.now()
  const time = await unlessRefused(server.time())
  if (time === null) return
  const at = Number(time[0]) * 1_000 + Number(time[1]) / 1_000
  // Redis dated the reply at some instant since the request.
  if (before - at > CLOCK_TOLERANCE_MS || at - Date.now() > CLOCK_TOLERANCE_MS) {
    report({ kind: 'clock', aheadMs: before - at })
  }
}

/** null where the server answers with an error. */
async function unlessRefused<T>(reply: Promise<T>): Promise<T | null> {
  try {
    return await reply
  } catch (error) {
    if (error instanceof Error && error.name === 'ReplyError') return null
    throw error
  }
}
