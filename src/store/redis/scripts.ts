import { readFileSync } from 'node:fs'
import type { RedisClient } from './connection.ts'

const NAMES = [
  'begin-refresh',
  'claim-due',
  'claim-nonce',
  'create-record',
  'end-record',
  'renew-lease',
  'replace-tokens',
  'reseal-tokens',
  'restore-tokens',
  'save-session',
  'schedule',
  'schedule-missing',
  'settle-refresh',
  'touch',
] as const

export type ScriptName = (typeof NAMES)[number]

/** Runs a script on its key or keys, all in one slot; the head of its file says what it returns. */
export type RunScript = (
  name: ScriptName,
  keys: string | readonly string[],
  ...args: (string | number)[]
) => Promise<unknown>

/**
 * Makes the scripts of `lua/` known to the client, which sends a script's text again by itself where
 * a server has lost it. Every script touches one slot, so each runs on any Cluster.
 */
export function defineScripts(client: RedisClient): RunScript {
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
