import { runCampaign } from './campaign.ts'
import { compileWorker, type Replacement } from './compile.ts'

/** A deliberate bug in the code, to verify that the simulation finds it. */
export interface Mutation {
  readonly name: string
  /** What goes wrong. */
  readonly what: string
  readonly replacements: readonly Replacement[]
}

const SEEDS = 5_000

const REFRESH = 'src/tokens/refresh.ts'
const RELIABLE = 'src/store/reliable.ts'
const CACHE = 'src/session/cache.ts'
const REDIS = 'test/simulation/simulated-redis.ts'

function mutation(name: string, what: string, file: string, find: string, put: string): Mutation {
  return { name, what, replacements: [{ file, find, put }] }
}

/** Rules that live in Lua are changed in the simulated Redis, and rules of the connections in theirs. */
export const MUTATIONS: readonly Mutation[] = [
  // Faults that were proven once and fixed.
  mutation(
    'lease-not-renewed',
    'a slow response lets others present the same refresh token',
    REFRESH,
    'else if (clock.monotonic() >= renewAt && !renewing && !ended) renew().catch(failed)',
    '',
  ),
  mutation(
    'one-heartbeat-for-all-masters',
    'messages of a Cluster are trusted as soon as one master proves them',
    'test/simulation/connections.ts',
    'for (const provenAt of this.#provenAt) if (this.clock.now - provenAt >= TRUSTED_FOR_MS) return false\n    return true',
    'return this.#provenAt.some((provenAt) => this.clock.now - provenAt < TRUSTED_FOR_MS)',
  ),
  mutation(
    'resource-server-ends-sessions',
    'a session ends when a renewed token is called invalid',
    'src/proxy/caller.ts',
    "access.kind === 'token_refused' && session.tokens.refreshToken === null",
    "access.kind === 'token_refused'",
  ),
  mutation(
    'sent-after-the-lease',
    'a process that was stalled after taking the lease still sends',
    REFRESH,
    'const sendBefore = attempt.leasedAt + timeoutMs',
    'const sendBefore = Number.POSITIVE_INFINITY',
  ),
  mutation(
    'overtaken-request-not-reset',
    'a request that waits in a broken connection is delivered after the record has moved on',
    REFRESH,
    "if (lost) reset('the refresh token has been replaced or presented elsewhere')",
    '',
  ),
  mutation(
    'refusal-ends-at-once',
    'a refusal does not wait for the response to an earlier presentation',
    REFRESH,
    'if (openMs > 0) {',
    'if (openMs > 1e9) {',
  ),
  mutation(
    'breaker-by-wall-clock',
    'a step of the wall clock keeps the breaker open',
    'src/tokens/tokens.ts',
    'now: clock.monotonic,\n    random,',
    'now: clock.wall,\n    random,',
  ),
  mutation(
    'lease-not-clamped',
    "a step back of Redis' clock makes a lease last an hour",
    REDIS,
    'const leased = Math.min(record.leaseUntil - now, leaseMs)',
    'const leased = record.leaseUntil - now',
  ),
  mutation(
    'activity-written-once',
    'activity that Redis did not take is forgotten',
    'src/store/activity.ts',
    'pending.set(key, activeAt)\n    }',
    '}',
  ),
  mutation(
    'server-error-is-no-doubt',
    'a 502 of the token endpoint counts as if nothing had been done',
    'src/oauth/token-response.ts',
    'return { ...inDoubt(reason), failedStatus: status }',
    "return { kind: 'unavailable', reason, retryAfterSeconds, timedOut: false, ofThisGrant: false }",
  ),
  mutation(
    'stop-waits-for-a-hanging-refresh',
    'a stop does not reset the connection of a token request that hangs',
    REFRESH,
    "for (const connection of unanswered) connection.abort(new Error('the process stops'))",
    '',
  ),
  mutation(
    'unsaved-tokens-served-blindly',
    'a replica that cannot read the store serves tokens that it could not store',
    RELIABLE,
    'let record = await store.read(key)',
    `let record = await store.read(key).catch((error: unknown) => {
        if (newest === undefined) throw error
        const endsAt = clock.wall() + 60_000
        return { seenAt: clock.wall(), idleEndsAt: endsAt, endsAt, flow: 'code', ...newest, leaseUntil: 0 }
      })`,
  ),
  mutation(
    'forced-refresh-refused-when-expired',
    'a token that has expired is not refreshed since a refresh was forced before',
    REFRESH,
    "trigger === 'invalid_token' && clock.wall() < found.tokens.expiresAt",
    "trigger === 'invalid_token'",
  ),
  // The rules of lease, fence and doubt.
  mutation('no-lease', 'a lease keeps nobody out', REDIS, 'if (leased > 0) {', 'if (leased > 1e12) {'),
  mutation(
    'no-fence',
    'tokens are stored over newer ones',
    REDIS,
    "if (record.gen > gen) return { kind: 'moved' }\n    const after",
    'const after',
  ),
  mutation(
    'restore-over-newer',
    'tokens that a failover lost are written again over newer ones',
    REDIS,
    "if (record.gen >= gen) return { kind: 'newer' }",
    '',
  ),
  mutation(
    'stale-generation-may-refresh',
    'the right to refresh is granted for tokens that were replaced',
    REDIS,
    "if (record.gen !== gen) return { kind: 'replaced' }",
    '',
  ),
  mutation(
    'no-pause-after-failover',
    'a promoted master grants the right to refresh at once',
    REDIS,
    'if (record.history !== this.history) {',
    "if (record.history === '') {",
  ),
  mutation(
    'doubts-ignored',
    'a refresh token in doubt is presented as if nothing had happened',
    REFRESH,
    'if (doubts === 0) return',
    'if (doubts >= 0) return',
  ),
  mutation(
    'doubt-not-written',
    'a presentation without a response leaves no doubt in the record',
    REFRESH,
    'doubtless ? null : { gen, doubts: after }',
    'null',
  ),
  mutation(
    'no-bound-for-responses',
    'a connection without a response keeps its lease for ever',
    REFRESH,
    'if (clock.monotonic() >= giveUpAt) giveUp()',
    'if (clock.monotonic() >= giveUpAt + 1e9) giveUp()',
  ),
  mutation(
    'lease-not-taken-again',
    'a lease that a failover has lost is not taken again by its holder',
    REDIS,
    "if (record.lease !== attempt && record.lease !== '') return 'taken'",
    "if (record.lease !== attempt) return 'taken'",
  ),
  mutation(
    'slot-leaks',
    'a refresh that the breaker holds back keeps its slot',
    REFRESH,
    "if (admission.kind === 'wait') {\n      releaseSlot()",
    "if (admission.kind === 'wait') {",
  ),
  // The rules of cache and outbox.
  mutation(
    'cache-not-told',
    'a change message drops nothing from the cache',
    CACHE,
    'store.onChange(drop)',
    '',
  ),
  mutation(
    'cache-always-trusted',
    'the cache is used although messages do not arrive',
    CACHE,
    'return store.health.isLive() ? (entries.peek(cookie) ?? null) : null',
    'return entries.peek(cookie) ?? null',
  ),
  mutation(
    'cache-without-guard',
    'a read that a change has overtaken is kept',
    CACHE,
    'if (isSpoiled(guard)) return',
    '',
  ),
  mutation(
    'unsaved-forgotten',
    'tokens that Redis did not take are dropped',
    RELIABLE,
    "await retry('tokens', endsAt - clock.wall(), write)",
    "{ kind: 'expired' }",
  ),
  mutation(
    'recent-forgotten',
    'nothing is written again after a failover',
    'src/store/failover-repair.ts',
    'kept.set(key, { written, at: monotonic(), confirmedAt: incidents, attempt: null, underWay: null })',
    '',
  ),
  mutation(
    'late-response-dropped',
    'a response that comes after its timeout is not used',
    REFRESH,
    'return await conclude(session, attempt, outcome)',
    "return { kind: 'changed' }",
  ),
  mutation(
    'no-background',
    'nothing is refreshed without a request',
    'src/tokens/scheduler.ts',
    'for (const { key, lateMs } of entries) work(key, lateMs, storeNow)',
    '',
  ),
]

export function findMutation(name: string): Mutation {
  const found = MUTATIONS.find((mutation) => mutation.name === name)
  if (found !== undefined) return found
  throw new Error(`there is no mutation ${name}, only: ${MUTATIONS.map(({ name }) => name).join(', ')}`)
}

/** Prints after how many seeds each is found. Whether all were. */
export async function tryMutations(mutations: readonly Mutation[], seeds = SEEDS): Promise<boolean> {
  let all = true
  console.log('| mutation | found by seed | rule |\n|---|--:|---|')
  for (const { name, what, replacements } of mutations) {
    const compiled = compileWorker(replacements)
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
