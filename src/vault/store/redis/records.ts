import { longestBackOffMsOf, pauseMsOf, type RecordMember } from '../record.ts'
import {
  type BeginRefreshResult,
  CLOCK_TOLERANCE_MS,
  END_KEPT_MS,
  type EndRequest,
  type EndResult,
  idleEndsAt,
  RECORD_SLACK_MS,
  type RecordKey,
  type ReplaceTokensResult,
  type SessionRecord,
  type SessionStore,
  type StoreUnavailable,
} from '../store.ts'
import type { Commands } from './commands.ts'
import type { RedisKeys } from './keys.ts'

interface RedisRecordsOptions {
  redisKeys: Pick<RedisKeys, 'record' | 'end'>
  /** The idle limit of sessions. */
  idleMs: number
  /** The wall clock of this process. */
  wall: () => number
}

/** Sealed tokens are strings of one byte a character. */
function toBytes(tokens: string): Buffer {
  return Buffer.from(tokens, 'latin1')
}

/** Whether no node of a Cluster ran a command on two keys, because their slot is being moved. */
function isSlotMoving(cause: unknown): boolean {
  // ioredis tries again elsewhere; its own error names whichever refusal came last.
  return cause instanceof Error && /TRYAGAIN |^Too many Cluster redirections/.test(cause.message)
}

/** Records in Redis: each step is one command or one script, by the rules of ../record.ts. */
export function createRedisRecords(
  { client, send, script }: Commands,
  { redisKeys, idleMs, wall }: RedisRecordsOptions,
): Pick<SessionStore, RecordMember> {
  async function end(key: RecordKey, request: EndRequest = {}): Promise<EndResult> {
    const { gen, reason = '', attempt = '', ifLimitPassed = false } = request
    const limits = [END_KEPT_MS, ifLimitPassed ? idleMs : '', CLOCK_TOLERANCE_MS]
    const args = [gen ?? '', reason, ...limits, attempt]
    const run = async (...keys: string[]) =>
      (await script('end-record', keys, ...args)) as [number, string, string]
    let oneAtATime = false
    const both = run(redisKeys.record(key), redisKeys.end(key)).catch((error: StoreUnavailable) => {
      oneAtATime = isSlotMoving(error.cause)
      // While their slot migrates, the two keys can only be written one at a time.
      if (oneAtATime) return run(redisKeys.record(key))
      throw error
    })
    const [code, tokens, why] = await both
    if (code === 0) return { kind: 'precondition_failed' }
    if (code === -1) return { kind: 'gone' }
    if (oneAtATime && reason !== '') {
      // Without its reason the session has ended all the same.
      const name = redisKeys.end(key)
      await send('set', name, () => client.set(name, why, 'PX', END_KEPT_MS)).catch(() => {})
    }
    return { kind: 'ended', tokens }
  }

  return {
    async create(key, { tokens, createdAt, endsAt, flow, client }, provisionalMs) {
      const limits = [createdAt, endsAt, flow, client, wall(), CLOCK_TOLERANCE_MS]
      const args = [Math.ceil(provisionalMs), toBytes(tokens), ...limits]
      await script('create-record', redisKeys.record(key), ...args)
    },

    async read(key) {
      const name = redisKeys.record(key)
      return toRecord(await send('hmget', name, () => client.hmgetBuffer(name, ...FIELDS)), idleMs)
    },

    async readState(key) {
      const name = redisKeys.record(key)
      const [gen, seen, ends] = await send('hmget', name, () => client.hmget(name, 'gen', 'seenAt', 'endsAt'))
      if (gen == null) return null
      const limits = { seenAt: Number(seen), endsAt: Number(ends) }
      return { gen: Number(gen), ...limits, idleEndsAt: idleEndsAt(limits, idleMs) }
    },

    async confirm(key) {
      return (await script('confirm-record', redisKeys.record(key), idleMs, RECORD_SLACK_MS)) === 1
    },

    async touch(key) {
      return (await script('touch', redisKeys.record(key), idleMs, RECORD_SLACK_MS)) === 1
    },

    async beginRefresh(key, request): Promise<BeginRefreshResult> {
      const { gen, attempt, leaseMs, openMs, forcedWindowMs } = request
      const bounds = [pauseMsOf(request), openMs, longestBackOffMsOf(request)]
      const args = [gen, attempt, leaseMs, forcedWindowMs, ...bounds]
      const reply = await script('begin-refresh', redisKeys.record(key), ...args)
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
      const reply = await script('renew-lease', redisKeys.record(key), gen, attempt, doubts, leaseMs)
      if (reply === -1) return 'gone'
      return reply === 1 ? 'held' : 'taken'
    },

    async releaseLease(key, { attempt, inDoubt, retryInMs }) {
      const { gen, doubts } = inDoubt ?? { gen: 0, doubts: 0 }
      const retry = Math.ceil(retryInMs)
      await script('release-lease', redisKeys.record(key), attempt, doubts, retry, gen)
    },

    async replaceTokens(key, { gen, tokens }): Promise<ReplaceTokensResult> {
      const reply = await script('replace-tokens', redisKeys.record(key), gen, toBytes(tokens))
      if (reply === -1) return { kind: 'gone' }
      return reply === 0 ? { kind: 'newer' } : { kind: 'replaced', written: reply === 1 }
    },

    async reseal(key, was, sealed) {
      return (await script('reseal-tokens', redisKeys.record(key), toBytes(was), toBytes(sealed))) === 1
    },

    end,

    async readEnd(key) {
      const name = redisKeys.end(key)
      const why = await send('get', name, () => client.get(name))
      if (why === null) return null
      const [reason = '', at] = why.split(' ')
      return { reason, at: Number(at) }
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
    flow: (flow ?? 'code') as SessionRecord['flow'],
    client: client ?? '',
    doubts: Number(doubts ?? 0),
    leaseUntil: Number(leaseUntil ?? 0),
    retryAt: Number(retryAt ?? 0),
    replacedAt: Number(replacedAt ?? 0),
  }
}
