/**
 * A deterministic simulation of the whole fleet on virtual time.
 *
 * One seed is one history. `simulate(seed)` draws the settings of a fleet (settings.ts) and a schedule of faults
 * (faults.ts), runs it, and returns what happened: counts, causes of lost sessions, and the first rule that was
 * broken, if any.
 *
 * What is real: the tokens module with everything below it (refresh, scheduler, queue repair, retries), the session
 * cache, callers, the forwarding steps, sign-in, sign-out and the session route (replica.ts puts
 * them together as src/app.ts does).
 *
 * What is simulated:
 * - virtual-clock.ts   timers and clocks: one queue of events for all processes; a process can stall or die
 * - simulated-redis.ts one Redis server, whose records and queue are those of src/vault/store
 * - simulated-store.ts the store port over such servers; connections.ts the connections of one process to them
 * - authorization-server.ts, resource-server.ts, browsers.ts
 * - deployment.ts      all of them together, and their faults
 *
 * What is checked: invariants.ts holds the truth about each session and the rules. A rule is checked at the event
 * that could break it. A session may be lost only by a documented cause (`LossCause`), and each use of a cause is counted.
 *
 * When a seed fails, shrink.ts looks for the faults that matter. mutations.ts breaks the code on purpose and
 * measures after how many seeds that is noticed.
 */

import { Deployment } from './deployment.ts'
import { drawFaults, type Fault, type FaultKind, scheduleFaults } from './faults.ts'
import type { LossCause, Violation } from './invariants.ts'
import { type Crowd, drawSettings, leaseMs, resetAfterMs, type Settings } from './settings.ts'
import { Trace } from './trace.ts'
import { realTurn } from './virtual-clock.ts'

interface SimulationOptions {
  /** Keep lines for a reader. */
  trace?: boolean
  /** Only these of the seed's faults. */
  faults?: readonly Fault[]
  /** Instead of the seed's own. */
  settings?: Settings
}

/** What happened in one history, or in many. */
export interface Tally {
  hours: number
  events: number
  calls: number
  sessions: number
  presentations: number
  /** Sessions that were lost by a documented cause. */
  lost: number
  readonly injected: Map<FaultKind, number>
  readonly lossCauses: Map<LossCause, number>
}

export interface SimulationResult {
  readonly seed: number
  readonly settings: Settings
  readonly faults: readonly Fault[]
  readonly violation: Violation | null
  /** Of everything that happened. */
  readonly hash: string
  readonly lines: readonly string[]
  readonly tally: Tally
}

/** The longest `Retry-After` of these histories, and a little: after that and a request that hangs all is well. */
const HEALED_AFTER_MS = 25_000

/** Runs the history of a seed. */
export async function simulate(seed: number, options: SimulationOptions = {}): Promise<SimulationResult> {
  const settings = options.settings ?? drawSettings(seed)
  const faults = options.faults ?? drawFaults(seed, settings)
  const trace = new Trace(options.trace ?? false)
  const deployment = new Deployment(seed, settings, trace)
  const { clock, checker } = deployment
  const onRejection = (reason: unknown): void => {
    const text = reason instanceof Error ? reason.stack : String(reason)
    checker.violated('a rejection is not handled', String(text))
  }
  process.on('unhandledRejection', onRejection)
  try {
    scheduleFaults(deployment, faults)
    await history(deployment)
  } finally {
    clock.uninstall()
    await realTurn()
    process.off('unhandledRejection', onRejection)
  }
  return {
    seed,
    settings,
    faults,
    violation: checker.violation,
    hash: trace.hash(),
    lines: trace.lines,
    tally: {
      hours: clock.now / 3_600_000,
      events: clock.events,
      calls: checker.calls,
      sessions: checker.sessions.size,
      presentations: checker.presentations,
      lost: checker.lost,
      injected: deployment.injected,
      lossCauses: checker.lossCauses,
    },
  }
}

export function emptyTally(): Tally {
  const counts = { hours: 0, events: 0, calls: 0, sessions: 0, presentations: 0, lost: 0 }
  return { ...counts, injected: new Map(), lossCauses: new Map() }
}

export function addTally(sum: Tally, { injected, lossCauses, ...counts }: Tally): void {
  for (const [name, count] of Object.entries(counts)) sum[name as keyof typeof counts] += count
  for (const [kind, count] of injected) sum.injected.set(kind, (sum.injected.get(kind) ?? 0) + count)
  for (const [cause, count] of lossCauses) sum.lossCauses.set(cause, (sum.lossCauses.get(cause) ?? 0) + count)
}

async function history(deployment: Deployment): Promise<void> {
  const { clock, settings, checker, browsers } = deployment
  if (settings.crowd !== null) gather(deployment, settings.crowd)
  await clock.run(settings.faultsUntilMs)
  if (settings.crowd !== null) crowdIsRefreshed(deployment, settings.crowd)
  checker.note('phase', 'the faults are over')
  await clock.run(clock.now + HEALED_AFTER_MS + resetAfterMs(settings))
  for (const browser of browsers) browser.rest()
  await clock.run(clock.now + settings.timeoutMs + 10_000)
  if (!clock.stopped) checker.checkStored()
  await everySessionIsServed(deployment)
  await backgroundRefreshes(deployment)
  await signOutsReachEverybody(deployment)
  await nothingIsLeft(deployment)
}

/** All replicas are away until the tokens of all sessions have expired. */
function gather(deployment: Deployment, { downAt, downMs }: Crowd): void {
  deployment.clock.in(downAt, null, () => {
    for (const index of deployment.replicas.keys()) deployment.crash(index, downMs)
  })
}

/** A crowd loses nobody, and is through as soon as the token endpoint can be. */
function crowdIsRefreshed({ checker }: Deployment, { downAt }: Crowd): void {
  if (checker.violation !== null) return
  const sessions = [...checker.sessions.values()].filter(
    (session) => checker.lives(session) && session.beganAt < downAt,
  )
  const late = sessions.filter(({ family }) => family.serial === 1)
  if (late.length > 0)
    checker.violated('a crowd is not refreshed in time', `${late.length} of ${sessions.length} sessions`)
}

/** Every living session is served by every replica. */
async function everySessionIsServed({
  clock,
  checker,
  browsers,
  replicas,
  settings,
}: Deployment): Promise<void> {
  if (clock.stopped) return
  if (settings.clocksStep) {
    // A lease of before a step back of Redis' clock is cut to its length by the first that meets it.
    for (const browser of browsers) if (browser.session !== null) browser.call(replicas[0]!, () => {})
    await clock.run(clock.now + leaseMs(settings) + settings.timeoutMs)
    if (clock.stopped) return
  }
  checker.note('phase', 'every session calls every replica')
  for (const browser of browsers) {
    if (browser.isBusy()) checker.violated('a browser waits for ever', `user ${browser.user}`)
    const { session } = browser
    if (session === null || !checker.lives(session)) continue
    for (const replica of replicas) {
      const text = `session ${session.family.id} by ${replica.name}`
      if (!replica.ready) {
        checker.violated('a replica is not ready after the faults', replica.name)
        continue
      }
      const untilExpiredMs = Math.max(0, session.family.expiresAt - clock.now) + 2_000
      const call = (mayRepeat: boolean): void =>
        browser.call(replica, (response) => {
          // Tokens that are dead when they arrive cannot be used, and a limit may have passed by now.
          if (response?.status === 200 || session.family.lifeSeconds < 5 || !checker.lives(session)) return
          if (response?.status === 401 || session.diedUnnamed) return
          // Since a step back of Redis' clock a refusal may still wait for the response to an earlier presentation.
          if (settings.clocksStep && session.causes.size > 0) return
          // After a lost response a replica whose clock is ahead waits for the expiry by the right clock (docs/limits.md).
          if (mayRepeat) return void clock.in(untilExpiredMs, null, () => call(false))
          checker.violated(
            'a session is not served after the faults',
            `${text}: ${response?.status} ${response?.code}`,
          )
        })
      call(settings.clocksStep)
    }
  }
  const lastMs = Math.max(0, ...browsers.map(({ session }) => (session?.family.expiresAt ?? 0) - clock.now))
  await clock.run(clock.now + 20_000 + (settings.clocksStep ? lastMs + 2_000 : 0))
}

/** With no call at all, tokens are replaced before they expire. */
async function backgroundRefreshes(deployment: Deployment): Promise<void> {
  const { clock, checker, settings, browsers } = deployment
  if (clock.stopped || !settings.watchesBackground) return
  checker.note('phase', 'no calls')
  await clock.run(clock.now + 100_000)
  for (const { session } of browsers) {
    if (session === null || !checker.lives(session) || session.causes.size > 0) continue
    const { lifeSeconds } = session.family
    if (lifeSeconds < 15 || lifeSeconds > 90 || settings.clocksStep || session.family.revoked) continue
    // What a failover took out of the queue, or version 0.2 has in its own, comes back with the next search, within minutes.
    if (checker.failedOverAt > 0 || settings.update !== null) continue
    const record = deployment.masterOf(session.key).live(session.key)
    if (record !== null && session.family.expiresAt < clock.now)
      checker.violated('tokens expire without a background refresh', `session ${session.family.id}`)
  }
}

/** A sign-out by one replica is noticed by the others. */
async function signOutsReachEverybody({ clock, browsers, replicas, checker }: Deployment): Promise<void> {
  if (clock.stopped) return
  checker.note('phase', 'everybody signs out')
  for (const [at, browser] of browsers.entries()) browser.signOut(replicas[at % replicas.length]!, () => {})
  await clock.run(clock.now + 5_000)
}

/** Nothing is kept in memory, and no timer runs, once all sessions have ended. */
async function nothingIsLeft(deployment: Deployment): Promise<void> {
  const { clock, checker, replicas } = deployment
  await clock.run(clock.now + 10_000)
  if (clock.stopped) return
  for (const replica of replicas) {
    const pending = replica.vault.gauges.unsaved()
    if (pending > 0) checker.violated('tokens are still pending at the end', `${replica.name}: ${pending}`)
    deployment.stop(replica, () => {})
  }
  await clock.run(clock.now + 30_000)
  for (const replica of replicas) {
    if (replica.alive) checker.violated('a replica does not stop at the end', replica.name)
    else if (replica.timers > 0)
      checker.violated('timers are left after a stop', `${replica.name}: ${replica.timers}`)
  }
}
