import { createHash } from 'node:crypto'
import type { Redis } from 'ioredis'
import type { RedisTarget } from '../../config/redis-url.ts'
import {
  type BeginRefreshResult,
  CLOCK_TOLERANCE_MS,
  END_KEPT_MS,
  type EndRequest,
  type EndResult,
  idleEndsAt,
  LONGEST_BACK_OFF_MS,
  RECORD_SLACK_MS,
  type RecordKey,
  type ReplaceTokensResult,
  type RestoreTokensResult,
  type SessionRecord,
  type SessionStore,
  type StoreUnavailable,
} from '../store.ts'
import { createCommands } from './commands.ts'
import { type ClientCertificate, openRedis } from './connection.ts'
import { reportFindings, type StoreFinding } from './deployment-findings.ts'
import { createCommandHealth, isRefusedLogin, reasonOf } from './health.ts'
import { createRedisQueue } from './queue.ts'
import { scanKeys } from './scan.ts'

export interface RedisStoreOptions {
  target: RedisTarget
  ca: string | null
  clientCertificate?: ClientCertificate | null
  prefix: string
  /** The idle limit of sessions. */
  idleMs: number
  /** The server refuses our credentials: retrying will not help. */
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

/**
 * Time for a replica to find the new master and to repair its writes: one connect timeout, the longest pause
 * before the next attempt, and a margin. While the access token is valid the pause is longer, up to a lease: a
 * token request may be under way whose lease the server has lost.
 */
export const NEW_HISTORY_PAUSE_MS = 4_000

/** Sealed tokens are strings of one byte a character. */
function toBytes(tokens: string): Buffer {
  return Buffer.from(tokens, 'latin1')
}

/** Whether no node of a Cluster ran a command on two keys, because their slot is being moved. */
function isSlotMoving(cause: unknown): boolean {
  // ioredis tries again elsewhere; its own error names whichever refusal came last.
  return cause instanceof Error && /TRYAGAIN |^Too many Cluster redirections/.test(cause.message)
}

/** The store over a single Redis, a Sentinel group or a Cluster; see `SessionStore` for its promises. */
export function createRedisStore(options: RedisStoreOptions): SessionStore {
  const { prefix, idleMs } = options
  const connections = openRedis(options)
  const client = connections.commands
  const health = createCommandHealth(client)
  const commands = createCommands({ client, health, observe: options.observe })
  const { send, script } = commands
  // Refused credentials end the process only at its start. Later it keeps running until they work again.
  let wasUp = false
  const reasons = new Set<string>()
  client.on('ready', () => {
    wasUp = true
    forgetReasons()
  })
  // A Cluster that has lost a node does not become ready again.
  client.on('+node', (node: Redis) => node.on('ready', forgetReasons))
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

  const redisKey = {
    record: (key: RecordKey): string => `${prefix}s:${key}`,
    /** In the slot of the record, so that one script may write both. */
    end: (key: RecordKey): string => `${prefix}e:{${prefix}s:${key}}`,
    nonce: (nonce: string): string => `${prefix}n:${createHash('sha256').update(nonce).digest('base64url')}`,
  }

  /** `idleLimitMs`: end it only if the store's clock agrees that a limit has passed. */
  async function endRecord(
    key: RecordKey,
    { gen, reason = '', attempt = '', successor = '' }: EndRequest,
    idleLimitMs: number | '' = '',
  ): Promise<EndResult> {
    const limits = [END_KEPT_MS, idleLimitMs, CLOCK_TOLERANCE_MS]
    const args = [gen ?? '', reason, ...limits, attempt, successor]
    const end = async (...keys: string[]) =>
      (await script('end-record', keys, ...args)) as [number, string, string]
    let oneAtATime = false
    const both = end(redisKey.record(key), redisKey.end(key)).catch((error: StoreUnavailable) => {
      oneAtATime = isSlotMoving(error.cause)
      // While their slot migrates, the two keys can only be written one at a time.
      if (oneAtATime) return end(redisKey.record(key))
      throw error
    })
    const [code, tokens, why] = await both
    if (code === 0) return { kind: 'precondition_failed' }
    if (code === -1) return { kind: 'gone', successor: tokens === '' ? null : tokens }
    if (oneAtATime && reason !== '') {
      // Without its reason the session has ended all the same.
      await send('set', () => client.set(redisKey.end(key), why, 'PX', END_KEPT_MS)).catch(() => {})
    }
    return { kind: 'ended', tokens }
  }

  return {
    async claimNonce(nonce, attempt, ttlMs) {
      return (await script('claim-nonce', redisKey.nonce(nonce), attempt, ttlMs)) === 1
    },

    async nonceClaimed(nonce) {
      return (await send('exists', () => client.exists(redisKey.nonce(nonce)))) === 1
    },

    async create(key, { tokens, createdAt, endsAt, flow, client }, provisionalMs) {
      const limits = [createdAt, endsAt, flow, client, Date.now(), CLOCK_TOLERANCE_MS]
      const args = [Math.ceil(provisionalMs), toBytes(tokens), ...limits]
      await script('create-record', redisKey.record(key), ...args)
    },

    async read(key) {
      return toRecord(
        await send('hmget', () => client.hmgetBuffer(redisKey.record(key), ...FIELDS), redisKey.record(key)),
        idleMs,
      )
    },

    async readState(key) {
      const name = redisKey.record(key)
      const [gen, seen, ends] = await send('hmget', () => client.hmget(name, 'gen', 'seenAt', 'endsAt'), name)
      if (gen == null) return null
      const limits = { seenAt: Number(seen), endsAt: Number(ends) }
      return { gen: Number(gen), ...limits, idleEndsAt: idleEndsAt(limits, idleMs) }
    },

    async confirm(key) {
      return (await script('confirm-record', redisKey.record(key), idleMs, RECORD_SLACK_MS)) === 1
    },

    async touch(key) {
      return (await script('touch', redisKey.record(key), idleMs, RECORD_SLACK_MS)) === 1
    },

    async beginRefresh(
      key,
      { gen, attempt, leaseMs, openMs, livesMs, forcedWindowMs },
    ): Promise<BeginRefreshResult> {
      const pauseMs = Math.max(NEW_HISTORY_PAUSE_MS, Math.ceil(Math.min(livesMs, leaseMs)))
      const longestBackOffMs = Math.ceil(Math.max(livesMs, LONGEST_BACK_OFF_MS))
      const args = [gen, attempt, leaseMs, forcedWindowMs, pauseMs, openMs, longestBackOffMs]
      const reply = await script('begin-refresh', redisKey.record(key), ...args)
      const [code, value, more = 0, age = -1] = reply as [number, number, number?, number?]
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
        case 0:
          return { kind: 'gone' }
        default:
          throw new Error(`begin-refresh returned the unknown code ${code}`)
      }
    },

    async renewLease(key, { gen, attempt, doubts, leaseMs }) {
      const reply = await script('renew-lease', redisKey.record(key), gen, attempt, doubts, leaseMs)
      if (reply === -1) return 'gone'
      return reply === 1 ? 'held' : 'taken'
    },

    async releaseLease(key, { attempt, inDoubt, retryInMs }) {
      const { gen, doubts } = inDoubt ?? { gen: 0, doubts: 0 }
      const retry = Math.ceil(retryInMs)
      await script('release-lease', redisKey.record(key), attempt, doubts, retry, gen)
    },

    async replaceTokens(key, { gen, attempt, tokens }): Promise<ReplaceTokensResult> {
      const args = [gen, attempt, toBytes(tokens)]
      const reply = await script('replace-tokens', redisKey.record(key), ...args)
      if (reply === -1) return { kind: 'gone' }
      return reply === 0 ? { kind: 'newer' } : { kind: 'replaced', gen: reply as number }
    },

    async reseal(key, was, sealed) {
      return (await script('reseal-tokens', redisKey.record(key), toBytes(was), toBytes(sealed))) === 1
    },

    async restoreTokens(key, { gen, attempt, tokens }): Promise<RestoreTokensResult> {
      const args = [gen, attempt, toBytes(tokens)]
      const reply = await script('restore-tokens', redisKey.record(key), ...args)
      if (reply === -1) return { kind: 'gone' }
      return { kind: reply === 0 ? 'newer' : 'restored' }
    },

    end: (key, request = {}) => endRecord(key, request),
    endPassed: (key, gen, reason) => endRecord(key, { gen, reason }, idleMs),

    async readEnd(key) {
      const why = await send('get', () => client.get(redisKey.end(key)))
      if (why === null) return null
      // An older version wrote the reason alone.
      const [reason = '', at] = why.split(' ')
      return { reason, at: at === undefined ? null : Number(at) }
    },

    ...createRedisQueue(commands, prefix),

    async *keys() {
      const batches = scanKeys(commands, redisKey.record(''))
      for await (const batch of batches) yield batch.filter((key) => RECORD_KEY.test(key))
    },

    health: {
      onIncident: health.onIncident,
      msSinceIncident: (key) => health.msSinceIncident(redisKey.record(key)),
    },

    async ping() {
      // A write, since a demoted master still replies to PING.
      await send('ping', () => client.set(`${prefix}ping`, '1', 'PX', 10_000))
    },

    async close() {
      connections.close()
    },
  }
}

/** The fields of the record's hash that are read, in this order. */
const FIELDS = [
  'tokens',
  'gen',
  'createdAt',
  'seenAt',
  'endsAt',
  'flow',
  'client',
  'doubts',
  'leaseUntil',
  'retryAt',
  'replacedAt',
] as const

/** A record from the values of `FIELDS`; null where there is none. */
function toRecord([sealed, ...values]: (Buffer | null)[], idleMs: number): SessionRecord | null {
  const [gen, createdAt, seenAt, endsAt, flow, client, doubts, leaseUntil, retryAt, replacedAt] = values.map(
    (value) => value?.toString(),
  )
  if (sealed == null || gen === undefined) return null
  return {
    tokens: sealed.toString('latin1'),
    gen: Number(gen),
    createdAt: Number(createdAt),
    seenAt: Number(seenAt),
    idleEndsAt: idleEndsAt({ seenAt: Number(seenAt), endsAt: Number(endsAt) }, idleMs),
    endsAt: Number(endsAt),
    flow: flow as SessionRecord['flow'],
    client: client ?? '',
    doubts: Number(doubts ?? 0),
    leaseUntil: Number(leaseUntil ?? 0),
    retryAt: Number(retryAt ?? 0),
    replacedAt: Number(replacedAt ?? 0),
  }
}
