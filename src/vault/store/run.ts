import type { RecordKey, RecordMember, RecordState, RunStep, StoredRecord } from './record.ts'
import { StoreUnavailable } from './store.ts'

/** A record as one command has shown it. */
export interface Shown {
  /** null: there is none. */
  readonly record: StoredRecord | null
  /** Another one after each change of the record's facts; '' where there is none. */
  readonly version: string
  /** The server's clock then, epoch milliseconds. */
  readonly now: number
}

/** What a step changes in a record that had this version when it was read. */
export interface RecordChange {
  readonly version: string
  readonly before: StoredRecord | null
  readonly after: RecordState
  /** The replication id that the step has seen; null where it has not looked. */
  readonly history: string | null
}

/** `changed`: the record has another version, so nothing was written. `moved`: the server has another replication id. */
export type WriteReply =
  | { kind: 'written'; version: string; now: number }
  | { kind: 'changed' }
  | { kind: 'moved'; history: string }

/** The two commands that steps need of a server. `withinMs`: how long they may take. */
export interface RecordCommands {
  read(key: RecordKey, member: RecordMember, withinMs: number): Promise<Shown>
  write(key: RecordKey, member: RecordMember, change: RecordChange, withinMs: number): Promise<WriteReply>
  /** The replication id that the server of this record had last; '' if it is not known. */
  historyOf(key: RecordKey): string
}

interface RunOptions {
  /** The idle limit of sessions. */
  idleMs: number
  /** How long a command may take. */
  withinMs: number
  monotonic: () => number
}

/** How long a step may take with all its commands: two at a round trip of 400 ms, and less than the second of a request. */
const STEP_MS = 950
/** The first of a process at a server takes three commands. A sign-in has waited for the authorization server before. */
const CREATE_MS = 1_600

/** No command outlasts the limit of its step. A step that is later than its limit by this much was held up by its process. */
const HELD_UP_MS = 50
/** The time that such a step still gets. */
const MORE_MS = 100

/** Records that this process has seen lately: a step on one of them is a single command. */
const SHOWN_KEPT = 1_000
const SHOWN_KEPT_MS = 60_000

/**
 * Runs steps over a server that can read a record, and write it if its facts are still those that were read. A step on a
 * record that was just read or written begins with what that has shown. If the record has changed meanwhile, the step
 * runs again on what a read shows now. The time that a step sees is never ahead of the server's clock.
 */
export function createRun(commands: RecordCommands, { idleMs, withinMs, monotonic }: RunOptions): RunStep {
  const lately = new Map<RecordKey, Shown & { at: number }>()

  function note(key: RecordKey, shown: Shown): void {
    lately.delete(key)
    if (shown.record === null) return
    const { record, version, now } = shown
    lately.set(key, { record, version, now, at: monotonic() })
    if (lately.size > SHOWN_KEPT) lately.delete(lately.keys().next().value!)
  }

  /** What was shown lately, with the time that it is now by the server's clock. */
  function recall(key: RecordKey): Shown | null {
    const shown = lately.get(key)
    if (shown === undefined) return null
    const { record, version, now, at } = shown
    const age = monotonic() - at
    return age > SHOWN_KEPT_MS ? null : { record, version, now: now + Math.floor(age) }
  }

  return async function run(key, member, step) {
    let until = monotonic() + (member === 'create' ? CREATE_MS : STEP_MS)
    const left = (): number => {
      const ms = until - monotonic()
      if (ms > 0) return Math.min(ms, withinMs)
      // Sent now, it could run after its caller was told of the failure.
      if (ms > -HELD_UP_MS) throw new StoreUnavailable(new Error('no reply in time'))
      until = monotonic() + MORE_MS
      return MORE_MS
    }
    const read = async (): Promise<Shown> => {
      const shown = await commands.read(key, member, left())
      note(key, shown)
      return shown
    }

    const recalled = member === 'read' ? null : recall(key)
    let isRead = recalled === null
    let shown = recalled ?? (await read())
    let history: string | null = null
    for (;;) {
      let looked: string | null = null
      const { record, version, now } = shown
      const before = { record, end: null }
      const [after, reply] = step(before, {
        now,
        idleMs,
        // A guess, which the write checks if the step has used it: `moved` brings the right one.
        get history() {
          looked = history ?? (record === null ? commands.historyOf(key) : record.history)
          return looked
        },
      })
      if (after.record === record) {
        if (isRead) return reply
        // What was shown lately proves nothing by itself.
        shown = await read()
        isRead = true
        continue
      }
      lately.delete(key)
      const change = { version, before: record, after, history: looked }
      const written = await commands.write(key, member, change, left())
      switch (written.kind) {
        case 'written':
          note(key, { record: after.record, version: written.version, now: written.now })
          return reply
        case 'moved':
          history = written.history
          break
        case 'changed':
          shown = await read()
          isRead = true
      }
    }
  }
}
