import { readFileSync } from 'node:fs'
import type { RedisClient } from './connection.ts'

const NAMES = ['claim-due', 'claim-nonce', 'count-try', 'read', 'schedule', 'write', 'write-hash'] as const

export type ScriptName = (typeof NAMES)[number]

/** An argument of a script; sealed tokens are bytes. */
export type ScriptArgument = string | number | Buffer

/**
 * A function that runs the scripts of `lua/`. The strings of a reply are of one byte a character. ioredis sends
 * the text of a script again if a server has lost it. Every script touches one slot, so each runs on any Cluster.
 */
export function defineScripts(
  client: RedisClient,
): (name: ScriptName, redisKeys: string | readonly string[], ...args: ScriptArgument[]) => Promise<unknown> {
  for (const name of NAMES) {
    const lua = readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), 'utf8')
    client.defineCommand(name, { lua })
  }
  const commands = client as unknown as Record<string, (...args: ScriptArgument[]) => Promise<unknown>>
  return async (name, redisKeys, ...args) => {
    const all = typeof redisKeys === 'string' ? [redisKeys] : redisKeys
    return toText(await commands[`${name}Buffer`]!(all.length, ...all, ...args))
  }
}

function toText(reply: unknown): unknown {
  if (Array.isArray(reply)) return reply.map(toText)
  return Buffer.isBuffer(reply) ? reply.toString('latin1') : reply
}
