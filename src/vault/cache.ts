import type { RecordKey } from './store/record.ts'
import type { SessionStore } from './store/store.ts'

/**
 * What this process knows of sessions: one entry each, found by the raw value of a verified cookie. An entry may be used
 * for `trustMs` from the sending of the last read that proved it (vault/caller.ts): by then what other replicas have
 * done is seen. What this process has done, `drop` says at once. Reads of one session are shared.
 */
export interface SessionCache<Entry> {
  /** The entry of a cookie's session, however old: whether it may still be used is for the caller to decide. */
  get(cookie: string): Entry | null
  /** The session of a cookie that was verified before; null if it has to be verified. */
  keyOf(cookie: string): RecordKey | null
  /** Remembers a verified cookie. */
  noteCookie(cookie: string, key: RecordKey): void
  /** As `get`, by the record key. */
  known(key: RecordKey): Entry | null
  /**
   * The result of a read that proves something now: it was sent after this call or less than `trustMs` ago, and this
   * process has not changed or ended the session since. A read under way is shared if it can do that; else
   * `send` begins one. `take` makes the result, in the same turn as that check, so no change comes between them.
   */
  read<Result, Taken>(key: RecordKey, read: SharedRead<Result, Taken>): Promise<Taken>
  put(key: RecordKey, entry: Entry | null): void
  /** After a change or an end by this process, or one that may have run: the entry goes, and reads that were sent before prove nothing. */
  drop(key: RecordKey): void
}

interface SharedRead<Result, Taken> {
  /** Reads of different kinds are not shared. */
  kind: 'state' | 'session'
  send: () => Promise<Result>
  /** `sentAt`: monotonic milliseconds. */
  take: (result: Result, sentAt: number) => Taken
}

interface SessionCacheOptions {
  /** Sessions at most. */
  max: number
  trustMs: number
  monotonic: () => number
}

interface Slot<Entry> {
  readonly key: RecordKey
  readonly cookies: Set<string>
  entry: Entry | null
  /** How often `drop` was called, or the slot evicted. A read proves nothing if it has grown since. */
  changes: number
  /** Under way. */
  readonly reads: Record<'state' | 'session', Read | null>
}

interface Read {
  readonly sentAt: number
  /** `changes` of the slot when it was sent. */
  readonly changes: number
  readonly result: Promise<unknown>
}

function newSlot<Entry>(key: RecordKey): Slot<Entry> {
  return { key, cookies: new Set(), entry: null, changes: 0, reads: { state: null, session: null } }
}

export function createSessionCache<Entry>({
  max,
  trustMs,
  monotonic,
}: SessionCacheOptions): SessionCache<Entry> {
  /** In the order of their last reads. */
  const slots = new Map<RecordKey, Slot<Entry>>()
  const byCookie = new Map<string, Slot<Entry>>()

  /** The slot of a session, now the last to be evicted. */
  function slotOf(key: RecordKey): Slot<Entry> {
    const slot = slots.get(key) ?? newSlot(key)
    slots.delete(key)
    slots.set(key, slot)
    if (slots.size > max) evict(slots.values().next().value!)
    return slot
  }

  function evict(slot: Slot<Entry>): void {
    slots.delete(slot.key)
    for (const cookie of slot.cookies) byCookie.delete(cookie)
    // `drop` would not find it any more, so what its reads show proves nothing.
    slot.changes += 1
  }

  function begin(slot: Slot<Entry>, kind: 'state' | 'session', send: () => Promise<unknown>): Read {
    const sentAt = monotonic()
    const read = { sentAt, changes: slot.changes, result: send() }
    slot.reads[kind] = read
    return read
  }

  return {
    get: (cookie) => byCookie.get(cookie)?.entry ?? null,
    keyOf: (cookie) => byCookie.get(cookie)?.key ?? null,
    noteCookie(cookie, key) {
      const slot = slotOf(key)
      slot.cookies.add(cookie)
      byCookie.set(cookie, slot)
    },
    known: (key) => slots.get(key)?.entry ?? null,

    async read<Result, Taken>(key: RecordKey, { kind, send, take }: SharedRead<Result, Taken>) {
      const askedAt = monotonic()
      const proves = (slot: Slot<Entry>, { sentAt, changes }: Read): boolean =>
        changes === slot.changes && (sentAt >= askedAt || monotonic() - sentAt < trustMs)
      for (;;) {
        const slot = slotOf(key)
        const underWay = slot.reads[kind]
        const read = underWay !== null && proves(slot, underWay) ? underWay : begin(slot, kind, send)
        try {
          const result = (await read.result) as Result
          if (proves(slot, read)) return take(result, read.sentAt)
        } finally {
          if (slot.reads[kind] === read) slot.reads[kind] = null
        }
      }
    },

    put(key, entry) {
      // A Map that changes with each call costs more than the call (decision 0008).
      const slot = slots.get(key) ?? slotOf(key)
      slot.entry = entry
    },
    drop(key) {
      const slot = slots.get(key)
      if (slot === undefined) return
      slot.changes += 1
      slot.entry = null
    },
  }
}

/**
 * The store with its writes reported to the cache: each step that changes what a cached caller goes by (`SessionState` of
 * record.ts) has its line below, also where it failed, since it may have run. A touch has none: no session ends by the age
 * of its activity in the cache, since the store is asked first. `onChanged`: this process has ended or bound a session or
 * replaced its tokens, or may have.
 */
export function reportWrites(store: SessionStore, onChanged: (key: RecordKey) => void): SessionStore {
  const reported =
    <Args extends unknown[], Result extends { kind: string }>(
      write: (key: RecordKey, ...args: Args) => Promise<Result>,
    ) =>
    async (key: RecordKey, ...args: Args): Promise<Result> => {
      try {
        const result = await write(key, ...args)
        // `look` asks for such an end where its own clock is wrong. Reported, it would repeat the read that `look` is part of
        // for ever.
        if (result.kind !== 'precondition_failed') onChanged(key)
        return result
      } catch (error) {
        onChanged(key)
        throw error
      }
    }
  return {
    ...store,
    end: reported(store.end),
    replaceTokens: reported(store.replaceTokens),
    // A cached entry would go on serving the session cookie alone.
    bindDevice: reported(store.bindDevice),
  }
}
