import { readFileSync } from 'node:fs'
import { StoreUnavailable } from '../store.ts'
import { inTime } from './command-timeout.ts'
import { isErrorReply, nodeOf, type RedisClient } from './connection.ts'
import type { CommandHealth } from './health.ts'

/** The files of `lua/`. */
const NAMES = ['claim-due', 'claim-nonce', 'count-try', 'read', 'schedule', 'write', 'write-hash'] as const

export type ScriptName = (typeof NAMES)[number]

/** An argument of a script; sealed tokens are bytes. */
export type ScriptArgument = string | number | Buffer

interface CommandsOptions {
  client: RedisClient
  health: CommandHealth
  /** Called for each command with its time in seconds and whether it succeeded. */
  observe: (command: string, seconds: number, ok: boolean) => void
}

/** The only way to send a command. Everything rejects with `StoreUnavailable`; the command may have run all the same. */
export interface Commands {
  readonly client: RedisClient
  /**
   * Sends the commands of `work`, measured under the name `command`. `redisKey`: one of their keys; null for none. If its
   * server takes no writes, that server has an incident. `withinMs`: at most the timeout of a command, the default.
   */
  send<T>(command: string, redisKey: string | null, work: () => Promise<T>, withinMs?: number): Promise<T>
  /** Runs a script on its Redis key, measured under its name; the head of its file says what it returns. */
  script(name: ScriptName, redisKey: string, ...args: ScriptArgument[]): Promise<unknown>
  /** A script as `work` of `send`. Its Redis keys are all in one slot. */
  runScript(
    name: ScriptName,
    redisKeys: string | readonly string[],
    ...args: ScriptArgument[]
  ): Promise<unknown>
  /** The node of a Cluster that has this Redis key, as far as it is known; else ''. */
  nodeOf(redisKey: string): string
}

export function createCommands({ client, health, observe }: CommandsOptions): Commands {
  const runScript = defineScripts(client)

  async function send<T>(
    command: string,
    redisKey: string | null,
    work: () => Promise<T>,
    withinMs?: number,
  ): Promise<T> {
    const startedAt = performance.now()
    let ok = false
    try {
      const reply = await inTime(work(), withinMs)
      ok = true
      health.noteSuccess()
      return reply
    } catch (cause) {
      health.noteFailure(cause, redisKey)
      throw new StoreUnavailable(health.explain(cause), !isErrorReply(cause))
    } finally {
      observe(command, (performance.now() - startedAt) / 1_000, ok)
    }
  }

  return {
    client,
    send,
    script: (name, redisKey, ...args) => send(name, redisKey, () => runScript(name, redisKey, ...args)),
    runScript,
    nodeOf: (redisKey) => nodeOf(client, redisKey),
  }
}

/**
 * A function that runs the scripts of `lua/`. The strings of a reply are of one byte a character. ioredis sends
 * the text of a script again if a server has lost it. Every script touches one slot, so each runs on any Cluster.
 */
function defineScripts(
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
