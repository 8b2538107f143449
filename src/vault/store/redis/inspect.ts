import { randomBytes, randomUUID } from 'node:crypto'
import { StoreUnavailable } from '../store.ts'
import { whenConnected } from '../when-connected.ts'
import { inTime } from './command-timeout.ts'
import {
  isErrorReply,
  mastersOf,
  openRedis,
  type RedisClientOptions,
  type RedisConnections,
  reasonOf,
} from './connection.ts'
import { describeNode, type RedisNode } from './deployment-findings.ts'
import { isRefusedLogin } from './health.ts'
import { createRedisStore } from './store.ts'

/** What Redis is and what the user of `REDIS_URL` may do there. */
type RedisInspection =
  | { readonly kind: 'unreachable' | 'refused'; readonly reason: string }
  | {
      readonly kind: 'reached'
      /** Every master of a Cluster, elsewhere the one server. */
      readonly nodes: readonly RedisNode[]
      /** What Redis did not permit or could not do, in its own words; empty when every step worked. */
      readonly failures: readonly string[]
    }

/** As long as the other checks of the doctor take. */
const CONNECT_WITHIN_MS = 5_000
/** A probe record that was left behind, because the connection broke, is gone after this. */
const PROBE_LIFE_MS = 5_000

type InspectionOptions = RedisClientOptions & { prefix: string }

/**
 * Connects once, describes each master, and runs every step that the server needs on a probe record below the
 * prefix, under a name that no session has. Deletes the probe.
 */
export async function inspectRedis(options: InspectionOptions): Promise<RedisInspection> {
  const connections = openRedis(options)
  try {
    const failure = await connected(connections)
    if (failure !== null) return failure
    const failures = new Set<string>()
    const note = (error: unknown): null => {
      failures.add(textOf(error))
      return null
    }
    const masters = mastersOf(connections.commands)
    const nodes = await Promise.all(masters.map((node) => describeNode(node, note)))
    const prefix = `${options.prefix}doctor:${randomUUID()}:`
    await Promise.all([
      tryRecord({ ...options, prefix }, note),
      inTime(masters[0]!.scan('0', 'COUNT', 1)).catch(note),
    ])
    return { kind: 'reached', nodes, failures: [...failures] }
  } finally {
    connections.close()
  }
}

type NotReached = Extract<RedisInspection, { reason: string }>

/** null once the client is connected, else why it is not. */
async function connected({ commands, onError }: RedisConnections): Promise<NotReached | null> {
  let reason: string | null = null
  const known = new Promise<NotReached | null>((resolve) => {
    onError((error) => {
      reason = reasonOf(error)
      if (isRefusedLogin(error)) resolve({ kind: 'refused', reason })
    })
    commands.once('ready', () => resolve(null))
  })
  try {
    return await inTime(known, CONNECT_WITHIN_MS)
  } catch (error) {
    return { kind: 'unreachable', reason: reason ?? textOf(error) }
  }
}

/** The life of one session, with each command and script that the server uses for it. */
async function tryRecord(options: InspectionOptions, note: (error: unknown) => null): Promise<void> {
  const store = createRedisStore({
    ...options,
    idleMs: PROBE_LIFE_MS,
    onRefused() {},
    onUnreachable() {},
    onReachable() {},
    observe() {},
  })
  const key = randomBytes(32).toString('hex')
  const attempt = randomUUID()
  const now = Date.now()
  const record = {
    tokens: 'probe',
    createdAt: now,
    endsAt: now + PROBE_LIFE_MS,
    flow: 'code',
    client: '',
  } as const
  const lease = { leaseMs: PROBE_LIFE_MS, openMs: 0, livesMs: 0, forcedWindowMs: 0 }
  try {
    await whenConnected(() => store.create(key, record, PROBE_LIFE_MS), CONNECT_WITHIN_MS, hasReplied)
    for (const step of [
      () => store.confirm(key),
      () => store.read(key),
      () => store.readState(key),
      () => store.touch(key),
      () => store.schedule(key, PROBE_LIFE_MS),
      () => store.claimDue(1, PROBE_LIFE_MS),
      () => store.queueLength(),
      () => store.beginRefresh(key, { gen: 1, attempt, ...lease }),
      () => store.replaceTokens(key, { gen: 1, tokens: 'probe' }),
      () => store.claimNonce(attempt, attempt, 1),
      () => store.countTry(attempt, 1),
      () => store.readEnd(key),
    ])
      await step().catch(note)
  } catch (error) {
    note(error)
  } finally {
    await store.schedule(key, null).catch(note)
    // Deletes the queue, which is empty now.
    await store.claimDue(1, PROBE_LIFE_MS).catch(note)
    await store.end(key).catch(note)
    await store.close()
  }
}

/** An error that the server itself sent: it is reached. */
function hasReplied(error: unknown): boolean {
  return error instanceof StoreUnavailable && isErrorReply(error.cause)
}

function textOf(error: unknown): string {
  const cause = error instanceof StoreUnavailable ? error.cause : error
  return cause instanceof Error ? reasonOf(cause) : String(cause)
}
