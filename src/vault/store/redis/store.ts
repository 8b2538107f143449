import type { SessionStore } from '../store.ts'
import { createCommands } from './commands.ts'
import { openRedis, type RedisClientOptions, type RedisServer, reasonOf } from './connection.ts'
import { reportFindings, type StoreFinding } from './deployment-findings.ts'
import { createCommandHealth, isRefusedLogin } from './health.ts'
import { createRedisKeys } from './keys.ts'
import { createRedisQueue } from './queue.ts'
import { createRedisRecords } from './records.ts'
import { scanKeys } from './scan.ts'

export interface RedisStoreOptions extends RedisClientOptions {
  prefix: string
  /** The idle limit of sessions. */
  idleMs: number
  /** The server refuses our credentials or our database: retrying will not help. */
  onRefused: (message: string) => void
  /** Called with why there is no connection, once for each reason until there is one again. */
  onUnreachable: (reason: string) => void
  /** There is a connection again, after `onUnreachable`. */
  onReachable: () => void
  /** Called once for each property of the deployment that will cause trouble. */
  onFinding?: (finding: StoreFinding) => void
  /** Called for each command with its time in seconds and whether it succeeded. */
  observe: (command: string, seconds: number, ok: boolean) => void
}

/** The prefix of another deployment may begin with this one. */
const RECORD_KEY = /^[0-9a-f]{64}$/

/** The store over a single Redis, a Sentinel group or a Cluster; see `SessionStore` for its promises. */
export function createRedisStore(options: RedisStoreOptions): SessionStore {
  const { prefix, idleMs } = options
  const redisKeys = createRedisKeys(prefix)
  const connections = openRedis(options)
  const client = connections.commands
  const health = createCommandHealth(client)
  const commands = createCommands({ client, health, observe: options.observe })
  const { send, script } = commands
  // Refused credentials, or a refused database, end the process only at its start. Later it keeps running until they work again.
  let wasUp = false
  const reasons = new Set<string>()
  client.on('ready', () => {
    wasUp = true
    forgetReasons()
  })
  // A Cluster that has lost a node does not become ready again.
  client.on('+node', (node: RedisServer) => node.on('ready', forgetReasons))
  connections.onError(onError)

  const found = new Set<string>()
  let inspected = options.onFinding === undefined
  client.on('ready', () => {
    if (inspected) return
    inspected = true
    reportFindings(client, prefix, report).catch(() => {
      // The connection failed: the next one is inspected.
      inspected = false
    })
  })

  function report(finding: StoreFinding): void {
    const name = finding.kind === 'denied' ? finding.what : finding.kind
    if (found.has(name)) return
    found.add(name)
    options.onFinding?.(finding)
  }

  function forgetReasons(): void {
    if (reasons.size > 0) options.onReachable()
    reasons.clear()
  }

  function onError(error: Error): void {
    const reason = reasonOf(error)
    if (isRefusedLogin(error) && !wasUp) options.onRefused(reason)
    else if (!reasons.has(reason)) {
      reasons.add(reason)
      options.onUnreachable(reason)
    }
  }

  return {
    async claimNonce(nonce, attempt, ttlMs) {
      return (await script('claim-nonce', redisKeys.nonce(nonce), attempt, ttlMs)) === 1
    },

    async countTry(bucket, windowMs) {
      const reply = await script('count-try', redisKeys.tries(bucket), windowMs)
      const [count, leftMs] = reply as [number, number]
      return { count, leftMs }
    },

    ...createRedisRecords(commands, { redisKeys, idleMs }),
    ...createRedisQueue(commands, redisKeys.due),

    async *keys() {
      const batches = scanKeys(commands, redisKeys.record(''))
      for await (const batch of batches) yield batch.filter((key) => RECORD_KEY.test(key))
    },

    async *endedKeys(beginning) {
      const prefix = redisKeys.end(beginning).slice(0, -1)
      for await (const batch of scanKeys(commands, prefix))
        yield batch.map((rest) => beginning + rest.slice(0, -1)).filter((key) => RECORD_KEY.test(key))
    },

    health: {
      onIncident: health.onIncident,
      msSinceIncident: (key) => health.msSinceIncident(redisKeys.record(key)),
    },

    async ping() {
      // A write, since a demoted master still replies to PING.
      await send('ping', redisKeys.ping, () => client.set(redisKeys.ping, '1', 'PX', 10_000))
    },

    async close() {
      connections.close()
    },
  }
}
