import type { EndResult, RecordKey, ReplaceTokensResult } from './record.ts'

/** Kinds of writes that are tried again. */
export type WriteKind = 'tokens' | 'lease' | 'end'

export type Written = ReplaceTokensResult | EndResult | { kind: 'released' }

/** One write. The store needs it until it has confirmed it, and again after each incident. */
export interface Entry {
  readonly name: string
  readonly kind: WriteKind
  readonly key: RecordKey
  /** The same call again changes nothing. */
  readonly write: () => Promise<Written>
  /** An end that nothing can prevent: if this server has no such session, the one after a failover may still have it. */
  readonly isUnconditional: boolean
  /** Monotonic: given up then. */
  readonly until: number
  /** What a read shows; null unless `kind` is `tokens`. */
  readonly tokens: { gen: number; tokens: string } | null
  /** How many incidents this process had counted when it sent the call that the store confirmed; null while pending. */
  confirmedAfter: number | null
  /** Monotonic: when the store first confirmed it. */
  keptFrom: number
  underWay: Promise<void> | null
  /** Settles `result`; null unless the entry is pending and its caller was given that promise. */
  settle: { resolve(result: Written | { kind: 'expired' }): void; reject(error: unknown): void } | null
  result: Promise<Written | { kind: 'expired' }> | null
}

/** What one process has written lately, in the order in which it is tried. */
export interface Entries {
  readonly byName: Map<string, Entry>
  incidents: number
  /** Monotonic: when old entries were forgotten last. */
  forgotAt: number
}

/** Of tokens, and again of all else. */
const BATCH_SIZE = 64
/** Older writes have reached the Redis replica that is promoted, unless it was cut off for long (docs/limits.md). */
const KEPT_MS = 60_000
/** About 40 MB of sealed tokens; with more than 330 refreshes a second in one process the time is shorter. */
const KEPT_AT_MOST = 20_000
/** To find its first entry a Map passes over the places of all that it has lost: that may take 15 µs. */
const FORGET_EVERY_MS = 1_000

export function newEntry(draft: Pick<Entry, 'kind' | 'key' | 'write' | 'until'> & Partial<Entry>): Entry {
  const more = { confirmedAfter: null, keptFrom: 0, underWay: null, settle: null, result: null }
  return { name: `${draft.kind} ${draft.key}`, tokens: null, isUnconditional: false, ...more, ...draft }
}

/** The store has not confirmed it yet. */
export function isPending(entry: Entry): boolean {
  return entry.confirmedAfter === null
}

/** It is pending, or was confirmed before the last incident, so the store may have lost it. */
export function needsWrite({ incidents }: Entries, { confirmedAfter }: Entry): boolean {
  return confirmedAfter === null || confirmedAfter < incidents
}

/** A read shows that the store has lost a confirmed write. */
export function markLost(entry: Entry): void {
  entry.confirmedAfter = -1
}

/** The end of a session that the store has confirmed to this process. */
export function confirmedEnd({ byName }: Entries, key: RecordKey): Entry | null {
  const entry = byName.get(`end ${key}`)
  return entry === undefined || isPending(entry) ? null : entry
}

export function tokensOf({ byName }: Entries, key: RecordKey): Entry | undefined {
  return byName.get(`tokens ${key}`)
}

export function pendingTokens({ byName }: Entries): Entry[] {
  return [...byName.values()].filter((entry) => entry.kind === 'tokens' && isPending(entry))
}

/** The next entries to be written: pending tokens, and beside them others, however many wait; pending ones first. */
export function nextBatch(entries: Entries): Entry[] {
  const tokens = pendingTokens(entries)
  const others = [...entries.byName.values()].filter(
    (entry) => needsWrite(entries, entry) && !(entry.kind === 'tokens' && isPending(entry)),
  )
  const inTurn = [...others.filter(isPending), ...others.filter((entry) => !isPending(entry))]
  return [...tokens.slice(0, BATCH_SIZE), ...inTurn.slice(0, BATCH_SIZE)]
}

/** Puts an entry at the end, in the place of an older one. false, and nothing changes, if what is there makes it needless. */
export function put(entries: Entries, entry: Entry): boolean {
  const { byName } = entries
  const before = byName.get(entry.name)
  if (entry.kind === 'tokens' && confirmedEnd(entries, entry.key) !== null) return false
  if (before !== undefined && before !== entry) {
    if (before.tokens !== null && before.tokens.gen >= entry.tokens!.gen) return false
    if (!isPending(before) && isPending(entry) && entry.kind === 'end') return false
    before.settle?.resolve(displaced(entry))
  }
  byName.delete(entry.name)
  byName.set(entry.name, entry)
  return true
}

/** The result of an entry whose place another one has. */
export function displaced({ kind }: Entry): { kind: 'newer' | 'expired' } {
  return { kind: kind === 'tokens' ? 'newer' : 'expired' }
}

export function moveToEnd({ byName }: Entries, entry: Entry): void {
  if (byName.get(entry.name) !== entry) return
  byName.delete(entry.name)
  byName.set(entry.name, entry)
}

export function forget({ byName }: Entries, entry: Entry): void {
  if (byName.get(entry.name) === entry) byName.delete(entry.name)
}

/** Keeps an entry that the store has confirmed for the first time. */
export function keep(entries: Entries, entry: Entry, now: number): void {
  entry.keptFrom = now
  if (entry.kind === 'end') entries.byName.delete(`tokens ${entry.key}`)
  put(entries, entry)
  if (now >= entries.forgotAt + FORGET_EVERY_MS) forgetOld(entries, now)
}

/** Forgets entries that need not be restored any more. The oldest come first: the first that stays ends the loop. */
export function forgetOld(entries: Entries, now: number): void {
  const { byName } = entries
  entries.forgotAt = now
  for (const [name, entry] of byName) {
    const tooMany = byName.size > KEPT_AT_MOST && !isPending(entry)
    if (!tooMany && (needsWrite(entries, entry) || now - entry.keptFrom < KEPT_MS)) return
    byName.delete(name)
  }
}
