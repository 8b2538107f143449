import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'
import type { Commands, ScriptArgument, ScriptName } from '../../../src/vault/store/redis/commands.ts'

/** What the scripts see of their server. */
export interface SeenServer {
  /** Epoch milliseconds. Keep it ahead of the real time, or Redis deletes what has expired by its own clock. */
  now: number
  /** The replication id, eight hex digits. */
  history: string
}

/** Before a script: TIME and INFO show what the test has set, and every expiry is counted from that TIME. */
const PRELUDE = `
local server = redis
local history = table.remove(ARGV)
local at = table.remove(ARGV)
local function call(name, ...)
  local args = {...}
  if name == 'TIME' then return {string.sub(at, 1, -4), string.sub(at, -3) .. '000'} end
  if name == 'INFO' then return 'master_replid:' .. history end
  if name == 'PEXPIRE' then return server.call('PEXPIREAT', args[1], string.format('%.0f', at + args[2])) end
  if name == 'SET' and args[3] == 'PX' then
    return server.call('SET', args[1], args[2], 'PXAT', string.format('%.0f', at + args[4]))
  end
  return server.call(name, ...)
end
local redis = {call = call, pcall = call}
`

/** The scripts of `lua/` on a real Redis, by a clock that only the test moves. */
export function scriptsAt(client: Redis, seen: SeenServer): Commands {
  const texts = new Map<ScriptName, string>()

  function textOf(name: ScriptName): string {
    const text =
      texts.get(name) ??
      PRELUDE +
        readFileSync(new URL(`../../../src/vault/store/redis/lua/${name}.lua`, import.meta.url), 'utf8')
    texts.set(name, text)
    return text
  }

  async function runScript(
    name: ScriptName,
    redisKeys: string | readonly string[],
    ...args: ScriptArgument[]
  ) {
    const keys = typeof redisKeys === 'string' ? [redisKeys] : redisKeys
    const { now, history } = seen
    const all = [keys.length, ...keys, ...args, String(now), history]
    return toText(await client.callBuffer('EVAL', textOf(name), ...all))
  }

  return {
    client,
    send: (_command, _redisKey, work) => work(),
    script: runScript,
    runScript,
    nodeOf: () => '',
  }
}

function toText(reply: unknown): unknown {
  if (Array.isArray(reply)) return reply.map(toText)
  return Buffer.isBuffer(reply) ? reply.toString('latin1') : reply
}
