import {
  type DeviceStore,
  decodeFacts,
  decodeState,
  encodeFacts,
  type RecordKey,
  type RecordMember,
  type RecordStore,
  type RefreshStore,
  recordMembers,
} from '../record.ts'
import { createRun, type RecordChange, type RecordCommands, type Shown, type WriteReply } from '../run.ts'
import { StoreUnavailable } from '../store.ts'
import { COMMAND_TIMEOUT_MS } from './command-timeout.ts'
import type { Commands, ScriptArgument } from './commands.ts'
import { isErrorReply } from './connection.ts'
import { hashFields, hashShown, hashVersion, hashVersionOf } from './hash-records.ts'
import type { RedisKeys } from './keys.ts'

interface RedisRecordsOptions {
  redisKeys: Pick<RedisKeys, 'record' | 'end'>
  /** The idle limit of sessions. */
  idleMs: number
}

/** The facts of most records are shorter; a longer one is read as a whole. */
const FACTS_AT_MOST = 512
/** Not seen: no server has this replication id. */
const UNKNOWN = '-'

/** Records in Redis: one text each, the facts and then the sealed tokens. The rules of ../record.ts run here. */
export function createRedisRecords(
  commands: Commands,
  { redisKeys, idleMs }: RedisRecordsOptions,
): RecordStore & RefreshStore & DeviceStore {
  const { client, send, runScript, nodeOf } = commands
  /** The replication id of each node, as a write has shown it last. */
  const histories = new Map<string, string>()

  async function read(key: RecordKey, member: RecordMember, withinMs: number): Promise<Shown> {
    const name = redisKeys.record(key)
    const reply = await send(labelOf(member), name, () => runScript('read', name), withinMs)
    const [now, value] = reply as [number, string | string[] | null]
    if (value === null) return { record: null, version: '', now }
    if (typeof value !== 'string') return hashShown(value, now)
    const end = value.indexOf('\n') + 1
    const facts = value.slice(0, end)
    const record = undamaged(() => decodeFacts(facts, value.slice(end)))
    return { record, version: facts, now }
  }

  async function write(
    key: RecordKey,
    member: RecordMember,
    change: RecordChange,
    withinMs: number,
  ): Promise<WriteReply> {
    const { before, after, history } = change
    const { record, end } = after
    const facts = record === null ? '' : encodeFacts(record)
    const tokens = record === null || record.tokens === before?.tokens ? '' : record.tokens
    const expireAt = record === null || record.expireAt === before?.expireAt ? '' : record.expireAt
    const looked = history === '' ? UNKNOWN : (history ?? '')
    const was = hashVersion(change.version)
    const kept = end === null ? ['', 0] : [`${end.reason} ${end.at}`, end.expireAt]
    // Without bytes ioredis writes the command as one string.
    const bytes = tokens === '' ? '' : Buffer.from(tokens, 'latin1')
    const common: ScriptArgument[] = [facts, bytes, expireAt, looked, ...kept]
    const run = (...names: string[]) =>
      send(
        labelOf(member),
        names[0]!,
        () =>
          was === null
            ? runScript('write', names, change.version, ...common)
            : runScript('write-hash', names, was, ...common, ...hashFields(record)),
        withinMs,
      )
    const name = redisKeys.record(key)
    const reply = await (end === null ? run(name) : run(name, redisKeys.end(key)).catch(oneAtATime))
    const [code, value] = reply as [number, number | string]
    switch (code) {
      case 0:
        return { kind: 'changed' }
      case -1:
        histories.set(nodeOf(name), String(value))
        return { kind: 'moved', history: String(value) }
      default: {
        const staysHash = was !== null && record !== null && tokens === ''
        return { kind: 'written', version: staysHash ? hashVersionOf(record) : facts, now: Number(value) }
      }
    }

    /** While the slot of the two keys migrates, they can only be written one at a time. */
    async function oneAtATime(error: unknown): Promise<unknown> {
      if (!(error instanceof StoreUnavailable && isSlotMoving(error.cause))) throw error
      const reply = (await run(name)) as [number, number]
      const why = redisKeys.end(key)
      // Without its reason the session has ended all the same.
      if (reply[0] === 1)
        await send('end', why, () => client.set(why, kept[0]!, 'PXAT', end!.expireAt)).catch(() => {})
      return reply
    }
  }

  const steps: RecordCommands = {
    read,
    write,
    historyOf: (key) => histories.get(nodeOf(redisKeys.record(key))) ?? '',
  }
  const run = createRun(steps, {
    idleMs,
    withinMs: COMMAND_TIMEOUT_MS,
    monotonic: () => performance.now(),
  })

  const members = recordMembers(run, Date.now)

  return {
    ...members,

    // The one read of the hot path is a plain command: the beginning of the text.
    async readState(key) {
      const name = redisKeys.record(key)
      try {
        const bytes = await send('read-state', name, () => client.getrangeBuffer(name, 0, FACTS_AT_MOST - 1))
        if (bytes.length === 0) return null
        const end = bytes.indexOf('\n')
        if (end >= 0) return undamaged(() => decodeState(bytes.toString('latin1', 0, end), idleMs))
      } catch (error) {
        const { cause } = error as StoreUnavailable
        if (!isErrorReply(cause) || !/WRONGTYPE/.test(String(cause))) throw error
      }
      return await members.readState(key)
    },

    async readEnd(key) {
      const name = redisKeys.end(key)
      const why = await send('read-end', name, () => client.get(name))
      if (why === null) return null
      const [reason = '', at] = why.split(' ')
      return { reason, at: Number(at) }
    },
  }
}

/** What a text shows. One that is damaged is a failure of the store for its session alone. */
function undamaged<T>(decode: () => T): T {
  try {
    return decode()
  } catch (error) {
    throw new StoreUnavailable(new Error('the record of a session is damaged', { cause: error }))
  }
}

const labels = new Map<RecordMember, string>()

/** What metrics and traces call the commands of a step: `begin-refresh` for `beginRefresh`. */
function labelOf(member: RecordMember): string {
  const label = labels.get(member) ?? member.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
  labels.set(member, label)
  return label
}

/** Whether no node of a Cluster ran a command on two keys, because their slot is being moved. */
function isSlotMoving(cause: unknown): boolean {
  // ioredis tries again elsewhere; its own error names whichever refusal came last.
  return cause instanceof Error && /TRYAGAIN |^Too many Cluster redirections/.test(cause.message)
}
