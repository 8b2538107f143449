import { runCampaign } from './campaign.ts'
import { compileWorker, type Replacement } from './compile.ts'

/** A deliberate bug in the code, to verify that the simulation finds it. */
interface Mutation extends Replacement {
  readonly name: string
  /** What goes wrong. */
  readonly what: string
}

const SEEDS = 5_000

const RULES = 'src/vault/refresh/rules.ts'
const REFRESH = 'src/vault/refresh/refresh.ts'
const PRESENTATION = 'src/vault/refresh/presentation.ts'
const OUTBOX = 'src/vault/store/outbox.ts'
const CACHE = 'src/vault/cache.ts'
const GATE = 'src/vault/refresh/gate.ts'
const CALLER = 'src/vault/caller.ts'
const RECORD = 'src/vault/store/record.ts'

export const MUTATIONS: readonly Mutation[] = [
  // Faults that were proven once and fixed.
  {
    name: 'lease-not-renewed',
    what: 'a slow response lets others present the same refresh token',
    file: PRESENTATION,
    find: "else if (monotonic() >= renewLeaseAt && lease === 'held') extendLease().catch(failed)",
    put: '',
  },
  {
    name: 'resource-server-ends-sessions',
    what: 'a session ends when the token of a forced refresh is called invalid',
    file: CALLER,
    find: "access.kind === 'not_refreshable'",
    put: "access.kind === 'wait'",
  },
  {
    name: 'sent-after-the-lease',
    what: 'a process that was stalled after taking the lease still sends',
    file: REFRESH,
    find: 'const sendBefore = leasedAt + timeoutMs',
    put: 'const sendBefore = Number.POSITIVE_INFINITY',
  },
  {
    name: 'overtaken-request-not-reset',
    what: 'a request that waits in a broken connection is delivered after the record has moved on',
    file: PRESENTATION,
    find: "if (lease === 'taken') reset('the refresh token has been replaced or presented elsewhere')",
    put: '',
  },
  {
    name: 'refusal-ends-at-once',
    what: 'a refusal does not wait for the response to an earlier presentation',
    file: RULES,
    find: 'if (ms <= 0) return { write: { kind: ',
    put: 'if (ms <= 1e9) return { write: { kind: ',
  },
  {
    name: 'breaker-by-wall-clock',
    what: 'a step of the wall clock keeps the breaker open',
    file: 'src/vault/refresh/tokens.ts',
    find: 'now: clock.monotonic,\n    random,',
    put: 'now: clock.wall,\n    random,',
  },
  {
    name: 'lease-not-clamped',
    what: "a step back of Redis' clock makes a lease last an hour",
    file: RECORD,
    find: 'const waitMs = Math.min(record.leaseUntil - now, leaseMs)',
    put: 'const waitMs = record.leaseUntil - now',
  },
  {
    name: 'activity-not-written',
    what: 'activity of a cached session is not recorded',
    file: CALLER,
    find: 'sessions.stay(caller.key).catch(() => {})',
    put: '',
  },
  {
    name: 'server-error-is-no-doubt',
    what: 'a 502 of the token endpoint counts as if nothing had been done',
    file: 'src/oauth/token-response.ts',
    find: 'return { ...inDoubt(reason), failedStatus: status, answer }',
    put: "return { kind: 'unavailable', reason, retryAfterSeconds, timedOut: false, ofThisGrant: false }",
  },
  {
    name: 'stop-waits-for-a-hanging-refresh',
    what: 'a stop does not reset the connection of a token request that hangs',
    file: REFRESH,
    find: "for (const presentation of open) presentation.reset('the process stops')",
    put: '',
  },
  {
    name: 'unsaved-tokens-served-blindly',
    what: 'a replica that cannot read the store serves tokens that it could not store',
    file: OUTBOX,
    find: 'const state = await read(key)',
    put: `const state = await read(key).catch((error: unknown) => {
        if (!before?.tokens) throw error
        const endsAt = clock.wall() + 60_000
        return { createdAt: endsAt, seenAt: endsAt, idleEndsAt: endsAt, endsAt, flow: 'code', ...before.tokens, leaseUntil: 0 }
      })`,
  },
  {
    name: 'forced-refresh-refused-when-expired',
    what: 'a token that has expired is not refreshed since a refresh was forced before',
    file: REFRESH,
    find: 'forced && clock.wall() < tokens.expiresAt ?',
    put: 'forced ?',
  },
  // The rules of lease, fence and doubt.
  {
    name: 'no-lease',
    what: 'a lease keeps nobody out',
    file: RECORD,
    find: 'if (waitMs > 0) {',
    put: 'if (waitMs > 1e12) {',
  },
  {
    name: 'no-fence',
    what: 'tokens are stored over newer ones',
    file: RECORD,
    find: "if (record.gen > gen) return [record, { kind: 'newer' }]",
    put: '',
  },
  {
    name: 'stale-generation-may-refresh',
    what: 'the lease is granted for tokens that were replaced',
    file: RECORD,
    find: "if (record.gen !== gen) return [record, { kind: 'replaced' }]",
    put: '',
  },
  {
    name: 'no-pause-after-failover',
    what: 'a promoted master grants the lease at once',
    file: RECORD,
    find: 'if (record.history !== history) {',
    put: "if (record.history === '') {",
  },
  {
    name: 'doubts-ignored',
    what: 'a refresh token in doubt is presented as if nothing had happened',
    file: RULES,
    find: 'doubts === 0\n          ? 0',
    put: 'doubts >= 0\n          ? 0',
  },
  {
    name: 'doubt-not-written',
    what: 'a presentation without a response leaves no doubt in the record',
    file: REFRESH,
    find: 'write.doubts === null ? null : { gen: record.gen, doubts: write.doubts }',
    put: 'null',
  },
  {
    name: 'no-bound-for-responses',
    what: 'a connection without a response keeps its lease for ever',
    file: PRESENTATION,
    find: 'if (monotonic() >= giveUpAt && !mayBeQueued()) giveUp()',
    put: 'if (monotonic() >= giveUpAt + 1e9) giveUp()',
  },
  {
    name: 'lease-not-taken-again',
    what: 'a lease that a failover has lost is not taken again by its holder',
    file: RECORD,
    find: "if (record.lease !== attempt && record.lease !== '') return [record, 'taken']",
    put: "if (record.lease !== attempt) return [record, 'taken']",
  },
  {
    name: 'place-leaks',
    what: 'a request keeps its place when nobody waits for it any more',
    file: GATE,
    find: 'awaited -= 1',
    put: '',
  },
  // A crowd at a slow token endpoint.
  {
    name: 'all-at-once',
    what: 'as many requests leave at once as the maximum permits',
    file: GATE,
    find: 'const BEGINS_AT = 8',
    put: 'const BEGINS_AT = 64',
  },
  {
    name: 'number-never-halved',
    what: 'late responses do not make fewer requests leave',
    file: GATE,
    find: 'limit = Math.max(1, limit / 2)',
    put: '',
  },
  {
    name: 'queued-request-given-up',
    what: 'a request is given up while the token endpoint answers others late',
    file: PRESENTATION,
    find: 'if (monotonic() >= giveUpAt && !mayBeQueued()) giveUp()',
    put: 'if (monotonic() >= giveUpAt) giveUp()',
  },
  // A server that grants a used refresh token again.
  {
    name: 'granted-again-for-ever',
    what: 'a refresh token in doubt is presented again more than once',
    file: RULES,
    find: 'return doubts === 1 && doubtAgeMs !== null',
    put: 'return doubts >= 1 && doubtAgeMs !== null',
  },
  {
    name: 'grace-not-used',
    what: 'a refresh token in doubt waits for the expiry although it would be granted again',
    file: RULES,
    find: 'isGrantedAgain(doubts, doubtAgeMs, facts.reuseMs) ? 0 : leftMs',
    put: 'leftMs',
  },
  // A rolling update from version 0.2.
  {
    name: 'lease-of-0.2-lost',
    what: 'a write to a record of version 0.2 loses the lease that a replica of that version holds',
    file: 'src/vault/store/redis/hash-records.ts',
    find: "  'leaseUntil',\n",
    put: '',
  },
  // The rules of cache and outbox.
  {
    name: 'ends-not-noticed-here',
    what: 'the replica that ends a session goes on serving it from memory',
    file: CACHE,
    find: 'end: reported(store.end),',
    put: '',
  },
  {
    name: 'cache-never-asks',
    what: 'a cached session is trusted until its token is due',
    file: CALLER,
    find: 'caller.usableUntil = Math.min(caller.provenUntil, ',
    put: 'caller.usableUntil = Math.min(',
  },
  {
    name: 'any-read-is-shared',
    what: 'a request shares a read that was sent long before it came',
    file: CACHE,
    find: '(sentAt >= askedAt || monotonic() - sentAt < trustMs)',
    put: 'true',
  },
  {
    name: 'unsaved-forgotten',
    what: 'tokens that Redis did not take are dropped',
    file: OUTBOX,
    find: 'if (!put(entries, entry)) entry',
    put: "if (entry.kind === 'tokens' || !put(entries, entry)) entry",
  },
  {
    name: 'recent-forgotten',
    what: 'nothing is written again after a failover',
    file: 'src/vault/store/outbox-entries.ts',
    find: 'entry.keptFrom = now',
    put: 'entry.keptFrom = now - 2 * KEPT_MS',
  },
  {
    name: 'late-response-dropped',
    what: 'a response that comes after its timeout is not used',
    file: REFRESH,
    find: 'void track(done.then((late) => conclude(options, self, presented, late, true)))',
    put: 'void done',
  },
  {
    name: 'no-background',
    what: 'nothing is refreshed without a request',
    file: 'src/vault/refresh/scheduler.ts',
    find: 'for (const { key, lateMs } of entries) work(key, lateMs, storeNow)',
    put: '',
  },
]

/** Throws for an unknown name. */
export function findMutation(name: string): Mutation {
  const found = MUTATIONS.find((mutation) => mutation.name === name)
  if (found !== undefined) return found
  throw new Error(`there is no mutation ${name}, only: ${MUTATIONS.map(({ name }) => name).join(', ')}`)
}

/** Prints after how many seeds each is found. Whether all were. */
export async function tryMutations(mutations: readonly Mutation[], seeds = SEEDS): Promise<boolean> {
  let all = true
  console.log('| mutation | found by seed | rule |\n|---|--:|---|')
  for (const mutation of mutations) {
    const { name, what } = mutation
    const compiled = await compileWorker(mutation)
    try {
      const { failures } = await runCampaign({ compiled, from: 1, seeds, untilFailure: true })
      const [first] = failures
      all &&= first !== undefined
      console.log(
        `| ${name}: ${what} | ${first?.seed ?? `none of ${seeds}`} | ${first?.violation.rule ?? ''} |`,
      )
    } finally {
      compiled.remove()
    }
  }
  return all
}
