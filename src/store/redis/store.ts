import { createHash } from 'node:crypto'
import type { RedisTarget } from '../../config/config.ts'
import type {
  BeginRefresh,
  EndRecord,
  RecordKey,
  ReplaceTokens,
  RestoreTokens,
  SessionStore,
} from '../store.ts'
import {
  CLOCK_TOLERANCE_MS,
  END_KEPT_MS,
  LONGEST_BACK_OFF_MS,
  RECORD_SLACK_MS,
  StoreUnavailable,
} from '../store.ts'
import { inTime } from './command-timeout.ts'
import { openRedis, reasonOf } from './connection.ts'
import { createMessages } from './messages.ts'
import { gatherWrites } from './pipelining.ts'
import { createRedisQueue } from './queue.ts'
import { createReach, isRefusal } from './reach.ts'
import { FIELDS, toRecord } from './record.ts'
import { scanKeys } from './scan.ts'
import { defineScripts } from './scripts.ts'
import { createTrouble } from './trouble.ts'

export interface RedisStoreOptions {
  target: RedisTarget
  ca: string | null
  prefix: string
  /** The server refuses our credentials: retrying will not help. */
  onRefused: (message: string) => void
  /** Called with why there is no connection, once for each reason until there is one again. */
  onUnreachable: (reason: string) => void
  /** There is a connection again, after `onUnreachable`. */
  onReachable: () => void
  /** Called for each command with its time in seconds and whether it succeeded. */
  observe: (command: string, seconds: number, ok: boolean) => void
}

/** Another deployment's prefix may begin with the whole of ours. */
const RECORD_KEY = /^[0-9a-f]{64}$/

/**
 * For a replica to find the new master and to write again what it lacks: a connect attempt to a host
 * that is gone without a word, the longest wait for the next, and a little. Longer, up to a lease, where
 * the access token lives: a token request may be under way whose lease the server has lost.
 */
const NEW_HISTORY_PAUSE_MS = 4_000

/** Whether no node of a Cluster ran a command on two keys, because their slot is being moved. */
function isSlotMoving(cause: unknown): boolean {
  // ioredis tries again elsewhere; its own error names whichever refusal came last.
  return cause instanceof Error && /TRYAGAIN |^Too many Cluster redirections/.test(cause.message)
}

/** The store over a single Redis, a Sentinel group or a Cluster; see `SessionStore` for its promises. */
export function createRedisStore({
  target,
  ca,
  prefix,
  onRefused,
  onUnreachable,
  onReachable,
  observe,
}: RedisStoreOptions): SessionStore {
  const connections = openRedis({ target, ca })
  const { commands } = connections
  const run = defineScripts(commands)
  const gather = gatherWrites(commands)
  const reach = createReach(commands)
  // Later on the process stays: sessions wait in it until the credentials are taken again.
  let wasUp = false
  const reasons = new Set<string>()
  const messages = createMessages({ prefix, connections, reach, onError })
  commands.on('ready', () => {
    wasUp = true
    forgetReasons()
  })
  // A Cluster that has lost a node does not become ready again.
  messages.onBack(forgetReasons)
  commands.on('error', onError)

  function forgetReasons(): void {
    if (reasons.size > 0) onReachable()
    reasons.clear()
  }

  function onError(error: Error): void {
    const reason = reasonOf(error)
    if (isRefusal(error) && !wasUp) onRefused(reason)
    else if (!reasons.has(reason)) {
      reasons.add(reason)
      onUnreachable(reason)
    }
  }

  const trouble = createTrouble(commands)
  messages.onLost(trouble.lost)

  const recordName = (key: RecordKey): string => `${prefix}s:${key}`
  /** In the slot of the record, so that one script may write both. */
  const endName = (key: RecordKey): string => `${prefix}e:{${recordName(key)}}`
  const nonceName = (nonce: string): string =>
    `${prefix}n:${createHash('sha256').update(nonce).digest('base64url')}`

  async function ask<T>(command: string, work: () => Promise<T>, name = ''): Promise<T> {
    const startedAt = performance.now()
    let ok = false
    gather()
    try {
      const answer = await inTime(work())
      ok = true
      reach.answered()
      return answer
    } catch (cause) {
      trouble.failed(cause, name)
      throw new StoreUnavailable(cause, reach.failed(cause))
    } finally {
      observe(command, (performance.now() - startedAt) / 1_000, ok)
    }
  }

  const script: typeof run = (name, keys, ...args) =>
    ask(name, () => run(name, keys, ...args), typeof keys === 'string' ? keys : keys[0])

  async function endRecord(
    key: RecordKey,
    gen: number | '',
    reason: string,
    idleMs: number | '',
  ): Promise<EndRecord> {
    const args = [gen, messages.channel, key, reason, END_KEPT_MS, idleMs, CLOCK_TOLERANCE_MS]
    const end = async (...keys: string[]) => (await script('end-record', keys, ...args)) as [number, string]
    let apart = false
    const both = end(recordName(key), endName(key)).catch((error: StoreUnavailable) => {
      apart = isSlotMoving(error.cause)
      // While their slot migrates two keys cannot be written at once, but one by one they can.
      if (apart) return end(recordName(key))
      throw error
    })
    const [code, tokens] = await both.catch((error: unknown) => {
      // It may have run, and its message need not arrive.
      messages.tell(key)
      throw error
    })
    if (code !== 1) return { kind: code === 0 ? 'moved' : 'gone' }
    messages.tell(key)
    if (apart && reason !== '') {
      // Without its reason the session has ended all the same.
      await ask('set', () => commands.set(endName(key), reason, 'PX', END_KEPT_MS)).catch(() => {})
    }
    return { kind: 'ended', tokens }
  }

  return {
    async claimNonce(nonce, attempt, ttlMs) {
      return (await script('claim-nonce', nonceName(nonce), attempt, ttlMs)) === 1
    },

    async nonceClaimed(nonce) {
      return (await ask('exists', () => commands.exists(nonceName(nonce)))) === 1
    },

    async create(key, { tokens, createdAt, endsAt, flow, client }, attempt, provisionalMs) {
      const args = [attempt, Math.ceil(provisionalMs), tokens, createdAt, endsAt, flow, client, Date.now()]
      await script('create-record', recordName(key), ...args)
    },

    async read(key) {
      return toRecord(await ask('hmget', () => commands.hmget(recordName(key), ...FIELDS)))
    },

    async saveSession(key, session, idleMs) {
      return (await script('save-session', recordName(key), session, idleMs, RECORD_SLACK_MS)) === 1
    },

    async touch(key, agoMs, idleMs) {
      return (await script('touch', recordName(key), agoMs, idleMs, RECORD_SLACK_MS)) === 1
    },

    async beginRefresh(
      key,
      { gen, attempt, leaseMs, openMs, livesMs, forcedWindowMs },
    ): Promise<BeginRefresh> {
      const pauseMs = Math.max(NEW_HISTORY_PAUSE_MS, Math.ceil(Math.min(livesMs, leaseMs)))
      const longestBackOffMs = Math.ceil(Math.max(livesMs, LONGEST_BACK_OFF_MS))
      const args = [gen, attempt, leaseMs, forcedWindowMs, pauseMs, openMs, longestBackOffMs]
      const answer = await script('begin-refresh', recordName(key), ...args)
      const [code, value, more = 0, age = -1] = answer as [number, number, number?, number?]
      switch (code) {
        case 1:
          return { kind: 'granted', doubts: value, openForMs: more, ageMs: age < 0 ? null : age }
        case 2:
          return { kind: 'replaced' }
        case 3:
          return { kind: 'busy', waitMs: value, ageMs: more }
        case 4:
          return { kind: 'backing_off', waitMs: value }
        case 5:
          return { kind: 'forced_before' }
        case 6:
          return { kind: 'paused', waitMs: value }
        default:
          return { kind: 'gone' }
      }
    },

    async renewLease(key, { gen, attempt, doubts, leaseMs }) {
      const answer = await script('renew-lease', recordName(key), gen, attempt, doubts, leaseMs)
      if (answer === -1) return 'gone'
      return answer === 1 ? 'held' : 'taken'
    },

    async settleRefresh(key, attempt, inDoubt, retryInMs) {
      const { gen, doubts } = inDoubt ?? { gen: 0, doubts: 0 }
      const retry = Math.ceil(retryInMs)
      await script('settle-refresh', recordName(key), attempt, doubts, retry, messages.channel, key, gen)
    },

    async replaceTokens(key, gen, attempt, tokens): Promise<ReplaceTokens> {
      const args = [gen, attempt, tokens, messages.channel, key]
      const answer = await script('replace-tokens', recordName(key), ...args)
      if (answer === -1) return { kind: 'gone' }
      return answer === 0 ? { kind: 'moved' } : { kind: 'replaced', gen: answer as number }
    },

    async reseal(key, was, sealed) {
      return (await script('reseal-tokens', recordName(key), was, sealed)) === 1
    },

    async restoreTokens(key, gen, attempt, tokens): Promise<RestoreTokens> {
      const args = [gen, attempt, tokens, messages.channel, key]
      const answer = await script('restore-tokens', recordName(key), ...args)
      if (answer === -1) return { kind: 'gone' }
      return { kind: answer === 0 ? 'newer' : 'restored' }
    },

    end: (key, gen, reason = '') => endRecord(key, gen ?? '', reason, ''),
    endPassed: (key, gen, reason, idleMs) => endRecord(key, gen, reason, idleMs),

    async endReason(key) {
      return await ask('get', () => commands.get(endName(key)))
    },

    ...createRedisQueue({ prefix, commands, ask, script }),

    async *keys() {
      const names = scanKeys(commands, recordName(''), (command) => ask('scan', command))
      for await (const batch of names) yield batch.filter((key) => RECORD_KEY.test(key))
    },

    forget: messages.tell,
    onChange: messages.onChange,
    messagesArrive: messages.arrive,
    msSinceMessagesArrived: messages.msSinceProof,
    onMessagesLost: messages.onLost,
    onMessagesBack: messages.onBack,
    unreached: reach.isLost,
    onTrouble: trouble.onTrouble,
    msSinceTrouble: (key) => trouble.msSince(recordName(key)),

    async ping() {
      // A write, since a demoted master still answers PING.
      await ask('ping', () => commands.set(`${prefix}ping`, '1', 'PX', 10_000))
    },

    async close() {
      messages.close()
      connections.close()
    },
  }
}
