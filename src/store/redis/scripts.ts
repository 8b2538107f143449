import { readFileSync } from 'node:fs'
import type { RedisClient } from './health.ts'

const NAMES = [
  'begin-refresh',
  'claim-due',
  'claim-nonce',
  'confirm-record',
  'create-record',
  'end-record',
  'release-lease',
  'renew-lease',
  'replace-tokens',
  'reseal-tokens',
  'restore-tokens',
  'schedule',
  'schedule-missing',
  'touch',
] as const

export type ScriptName = (typeof NAMES)[number]

/**
 * A function that runs the scripts of `lua/`. ioredis sends the text of a script again where a server has lost
 * it. Every script touches one slot, so each runs on any Cluster.
 */
export function defineScripts(
  client: RedisClient,
): (name: ScriptName, keys: string | readonly string[], ...args: (string | number)[]) => Promise<unknown> {
  for (const name of NAMES) {
    const lua = readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), 'utf8')
    client.defineCommand(name, { lua })
  }
  const commands = client as unknown as Record<string, (...args: (string | number)[]) => Promise<unknown>>
  return (name, keys, ...args) => {
    const all = typeof keys === 'string' ? [keys] : keys
    return commands[name]!(all.length, ...all, ...args)
  }
}
