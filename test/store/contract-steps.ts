import { isDeepStrictEqual } from 'node:util'
import type { Test } from 'tap'
import type { BeginRefreshRequest, EndRequest, RecordKey } from '../../src/store/store.ts'
import { leaseRequest, startSession, type TestStore } from './stores.ts'

export const LONG = 60_000

/** A session and its store. */
interface Session extends TestStore {
  readonly key: RecordKey
}

type Call = (session: Session) => unknown
/** A call, and what its result matches: a pattern, or a function that accepts the result. */
export type Step = [call: Call, result?: unknown]

/** A test of each case: the steps run in order on one confirmed session. */
export async function runCases(t: Test, made: TestStore, cases: Record<string, Step[]>): Promise<void> {
  for (const [name, steps] of Object.entries(cases))
    await t.test(name, async (t) => {
      const session = { ...made, key: await startSession(made) }
      for (const [at, [call, expected]] of steps.entries()) {
        const result = await call(session)
        const what = `step ${at + 1} of ${steps.length}`
        if (typeof expected === 'function') t.ok(expected(result), `${what}: ${JSON.stringify(result)}`)
        else if (expected !== undefined) t.match(result, expected, what)
      }
    })
}

export const begin =
  (attempt: string, request: Partial<BeginRefreshRequest> = {}): Call =>
  ({ store, key }) =>
    store.beginRefresh(key, leaseRequest(attempt, request))

/** Releases the lease; with `doubts`, as a presentation in doubt. */
export const release =
  (attempt: string, { retryInMs = 0, doubts = 0, gen = 1 } = {}): Call =>
  ({ store, key }) =>
    store.releaseLease(key, { attempt, inDoubt: doubts === 0 ? null : { gen, doubts }, retryInMs })

export const renew =
  (attempt: string, { doubts = 1, gen = 1, leaseMs = LONG } = {}): Call =>
  ({ store, key }) =>
    store.renewLease(key, { gen, attempt, doubts, leaseMs })

export const replace =
  (gen = 1, tokens = `sealed-${gen + 1}`): Call =>
  ({ store, key }) =>
    store.replaceTokens(key, { gen, tokens })

export const reseal =
  (was: string, sealed: string): Call =>
  ({ store, key }) =>
    store.reseal(key, was, sealed)

export const end =
  (request?: EndRequest): Call =>
  ({ store, key }) =>
    store.end(key, request)

export const read: Call = ({ store, key }) => store.read(key)
export const readEnd: Call = ({ store, key }) => store.readEnd(key)
export const touch: Call = ({ store, key }) => store.touch(key)
export const confirm: Call = ({ store, key }) => store.confirm(key)

export const pass =
  (ms: number): Call =>
  (session) =>
    session.pass(ms)

/** Whether the call changed nothing but these fields of the record. */
export const changesOnly =
  (fields: object, call: Call): Call =>
  async (session) => {
    const before = await read(session)
    await call(session)
    return isDeepStrictEqual(await read(session), { ...(before as object), ...fields })
  }

export const granted = (doubts: number) => ({ kind: 'granted', doubts, openForMs: 0 })
/** A result of this kind with nearly the whole of a long wait. */
export const waitsLong =
  (kind: string) =>
  (result: { kind: string; waitMs: number }): boolean =>
    result.kind === kind && result.waitMs > LONG - 10_000 && result.waitMs <= LONG
export const written = { kind: 'replaced', written: true }
export const writtenBefore = { kind: 'replaced', written: false }
