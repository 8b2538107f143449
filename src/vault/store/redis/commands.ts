import { StoreUnavailable } from '../store.ts'
import { inTime } from './command-timeout.ts'
import type { RedisClient } from './connection.ts'
import type { CommandHealth } from './health.ts'
import { defineScripts, type ScriptArgument, type ScriptName } from './scripts.ts'

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
   * server takes no writes, that server has an incident.
   */
  send<T>(command: string, redisKey: string | null, work: () => Promise<T>): Promise<T>
  /** Runs a script on its Redis keys, all in one slot; the head of its file says what it returns. */
  script(name: ScriptName, redisKeys: string | readonly string[], ...args: ScriptArgument[]): Promise<unknown>
}

export function createCommands({ client, health, observe }: CommandsOptions): Commands {
  const runScript = defineScripts(client)

  async function send<T>(command: string, redisKey: string | null, work: () => Promise<T>): Promise<T> {
    const startedAt = performance.now()
    let ok = false
    try {
      const reply = await inTime(work())
      ok = true
      health.noteSuccess()
      return reply
    } catch (cause) {
      const isUnreached = health.noteFailure(cause, redisKey)
      throw new StoreUnavailable(health.explain(cause), isUnreached)
    } finally {
      observe(command, (performance.now() - startedAt) / 1_000, ok)
    }
  }

  return {
    client,
    send,
    script(name, redisKeys, ...args) {
      const first = typeof redisKeys === 'string' ? redisKeys : redisKeys[0]!
      return send(name, first, () => runScript(name, redisKeys, ...args))
    },
  }
}
