import { readFileSync } from 'node:fs'
import type { RedisClient } from './redis-client.ts'

const NAMES = [
  'begin-refresh',
  'claim-due',
  'claim-nonce',
  'create-record',
  'end-record',
  'replace-tokens',
  'reseal-tokens',
  'restore-tokens',
  'save-session',
  'settle-refresh',
  'touch',
] as const

export type ScriptName = (typeof NAMES)[number]

/** Scripts of more than one key; all of them are in one slot. */
const NUMBER_OF_KEYS: Partial<Record<ScriptName, number>> = { 'end-record': 2 }

/** Runs a script on its key, further keys before its arguments; the head of its file tells what it returns. */
export type RunScript = (name: ScriptName, key: string, ...args: (string | number)[]) => Promise<unknown>

/**
 * Makes the scripts of `lua/` known to the client, which sends a script's text again by itself where
 * a server has lost it. Every script touches one slot, so each runs on any Cluster.
 */
export function defineScripts(client: RedisClient): RunScript {
  for (const name of NAMES) {
    const lua = readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), 'utf8')
    client.defineCommand(name, { numberOfKeys: NUMBER_OF_KEYS[name] ?? 1, lua })
  }
  const commands = client as unknown as Record<string, (...args: (string | number)[]) => Promise<unknown>>
  return (name, key, ...args) => commands[name]!(key, ...args)
}
