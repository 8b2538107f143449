import type { Behaviour } from './authorization-server.ts'
import type { Deployment } from './deployment.ts'
import { Random } from './random.ts'
import { leaseMs, type Settings } from './settings.ts'
import type { StoreCommand } from './simulated-store.ts'

/** Steps of the protocol that a fault can be aimed at. */
export const PROTOCOL_STEPS = [
  'lease granted',
  'request sent',
  'request delivered',
  'rotated',
  'response delivered',
  'tokens stored',
  'session ended',
  'session begun',
] as const

export type ProtocolStep = (typeof PROTOCOL_STEPS)[number]

type Change =
  | { kind: 'stall'; ms: number }
  | { kind: 'crash'; downMs: number }
  | { kind: 'restart'; downMs: number }
  | { kind: 'wall-clock'; byMs: number }
  | { kind: 'change-secrets'; pauseMs: number }
  | { kind: 'freeze-master'; ms: number }
  | { kind: 'failover'; lostMs: number; frozenMs: number; staysMs: number }
  | { kind: 'restart-master'; keeps: 'everything' | 'all but the last second' | 'nothing'; downMs: number }
  | { kind: 'refuse-writes'; error: string; ms: number }
  | { kind: 'refuse-connections'; ms: number }
  | { kind: 'redis-clock'; byMs: number }
  | { kind: 'reset' }
  | { kind: 'cut'; ms: number }
  | { kind: 'slow-redis'; ms: number; byMs: number; everybody: boolean }
  | { kind: 'break-before'; command: StoreCommand }
  | { kind: 'break-after'; command: StoreCommand }
  | { kind: 'auth'; ms: number; share: number; behaviour: Behaviour }
  | { kind: 'auth-refuses'; ms: number }
  | { kind: 'auth-cut'; ms: number }
  | { kind: 'auth-delay'; ms: number; byMs: number }
  | { kind: 'resource-refuses'; ms: number }
  | { kind: 'resource-down'; ms: number }
  | { kind: 'resource-slow'; ms: number; byMs: number }
  | { kind: 'user-revokes'; browser: number }
  /** By another replica than the one in question, which is then called with what other pages still have. */
  | { kind: 'sign-out-elsewhere'; browser: number }

export type FaultKind = Change['kind']

/** Something that goes wrong, decided before the simulation begins. */
export interface Fault {
  readonly id: number
  /** Milliseconds of virtual time; with `aim` the first such step after it. */
  readonly at: number
  readonly aim: ProtocolStep | null
  /** From the step to the fault. */
  readonly delayMs: number
  /** Index of the replica. */
  readonly replica: number
  /** Whether an aimed fault hits the process that took the step, instead of `replica`. */
  readonly actor: boolean
  /** Index of the master of Redis. */
  readonly master: number
  readonly change: Change
}

/** How often each kind is drawn. */
function weightsOf(settings: Pick<Settings, 'topology' | 'clocksStep'>): Record<FaultKind, number> {
  return {
    stall: 14,
    crash: 7,
    restart: 6,
    'wall-clock': settings.clocksStep ? 6 : 0,
    'change-secrets': 2,
    'freeze-master': 4,
    failover: settings.topology === 'single' ? 0 : 9,
    'restart-master': settings.topology === 'cluster' ? 1 : 3,
    'refuse-writes': 4,
    'refuse-connections': 3,
    'redis-clock': settings.clocksStep ? 5 : 0,
    reset: 6,
    cut: 8,
    'slow-redis': 4,
    'break-before': 6,
    'break-after': 8,
    auth: 22,
    'auth-refuses': 3,
    'auth-cut': 5,
    'auth-delay': 3,
    'resource-refuses': 3,
    'resource-down': 1,
    'resource-slow': 2,
    'user-revokes': 2,
    'sign-out-elsewhere': 4,
  }
}

/** Every kind that some seed draws. */
export const FAULT_KINDS = Object.keys(weightsOf({ topology: 'single', clocksStep: true })) as FaultKind[]

/** Kinds that a history leaves out: with fewer kinds, each occurs more often and has deeper effects. */
export function drawWithoutFaults(
  random: Random,
  settings: Pick<Settings, 'topology' | 'clocksStep'>,
): FaultKind[] {
  if (random.chance(0.4)) return []
  const weights = weightsOf(settings)
  const kinds = FAULT_KINDS.filter((kind) => weights[kind] > 0)
  const without = kinds.filter(() => random.chance(0.7))
  return without.length === kinds.length ? [] : without
}

const COMMANDS: readonly StoreCommand[] = [
  'beginRefresh',
  'renewLease',
  'releaseLease',
  'replaceTokens',
  'end',
  'create',
  'confirm',
  'schedule',
  'claimDue',
  'touch',
  'read',
  'readState',
]

/** The faults of a seed. Each draws from a stream of its own, so leaving one out changes no other. */
export function drawFaults(seed: number, settings: Settings): Fault[] {
  const faults = Array.from({ length: settings.faults }, (_, id) => drawFault(seed, id, settings))
  return settings.scenario ? [...faults, ...drawScenario(seed, faults.length, settings)] : faults
}

/** Sequences of faults that lead to dangerous states and rarely occur by chance. */
function drawScenario(seed: number, firstId: number, settings: Settings): Fault[] {
  const random = new Random(seed, 'scenario')
  const lease = leaseMs(settings)
  const at = random.between(5_000, settings.faultsUntilMs * 0.6)
  const replica = random.int(settings.replicas)
  const master = random.int(settings.masters)
  const browser = random.int(settings.browsers)
  let id = firstId - 1
  const fault = (change: Change, afterMs: number, aim: ProtocolStep | null = null): Fault => {
    id += 1
    return { id, at: at + afterMs, aim, delayMs: 0, replica, actor: true, master, change }
  }
  const leases = (low: number, high: number): number => random.between(low, high) * lease
  const signOuts = (afterMs: number): Fault[] =>
    [0, 1].map((more) =>
      fault({ kind: 'sign-out-elsewhere', browser: (browser + more) % settings.browsers }, afterMs),
    )
  const anHourBack = -3_600_000
  if (settings.clocksStep && random.chance(0.4)) {
    return random.chance(0.5)
      ? // The clock of a process is set back while it waits for the token endpoint to come back.
        [
          fault({ kind: 'auth-refuses', ms: random.between(10_000, 30_000) }, 0),
          fault({ kind: 'wall-clock', byMs: anHourBack }, random.between(4_000, 9_000)),
        ]
      : // Redis' clock is set back under a lease whose holder dies.
        [
          fault({ kind: 'redis-clock', byMs: anHourBack }, 0, 'lease granted'),
          fault({ kind: 'crash', downMs: 2_000 }, 0, 'lease granted'),
        ]
  }
  switch (random.int(7)) {
    case 0:
      // A request waits in a broken connection while its process is stopped.
      return [
        fault({ kind: 'auth-cut', ms: leases(3, 6) }, 0),
        fault({ kind: 'stall', ms: leases(1.1, 2) }, 0, 'request sent'),
      ]
    case 1: {
      // The process that will receive the response is stopped, and others present the same refresh token.
      const behaviour = { kind: 'slow', ms: leases(1.5, 2.5), rotatesFirst: true } as const
      return [
        fault({ kind: 'auth', ms: random.between(3_000, 12_000), share: 1, behaviour }, 0),
        fault({ kind: 'stall', ms: leases(1.1, 1.9) }, 0, 'request delivered'),
      ]
    }
    case 2:
      // New tokens cannot be stored, and the session ends elsewhere.
      return [
        fault({ kind: 'cut', ms: random.between(8_000, 30_000) }, 0, 'response delivered'),
        ...signOuts(random.between(1_000, 20_000)),
      ]
    case 3:
      // Reads take long, and the session ends elsewhere meanwhile.
      return [
        fault({ kind: 'slow-redis', ms: random.between(3_000, 20_000), byMs: 300, everybody: false }, 0),
        ...signOuts(2_000),
      ]
    case 4:
      return [fault({ kind: 'cut', ms: random.between(3_000, 20_000) }, 0), ...signOuts(2_000)]
    case 5:
      // A process is stopped between taking the lease and sending the request.
      return [fault({ kind: 'stall', ms: leases(1, 2) }, 0, 'lease granted')]
    default:
      // The newest tokens are lost with a master.
      return [
        fault(
          { kind: 'failover', lostMs: random.between(5, 1_000), frozenMs: 0, staysMs: 0 },
          0,
          'tokens stored',
        ),
        fault({ kind: 'cut', ms: random.between(500, 6_000) }, 0, 'tokens stored'),
      ]
  }
}

function drawFault(seed: number, id: number, settings: Settings): Fault {
  const random = new Random(seed, `fault ${id}`)
  const change = drawChange(random, settings)
  const delayMs = random.chance(0.5) ? 0 : random.between(0, random.chance(0.5) ? 20 : 1_000)
  const fault = {
    id,
    at: random.between(3_000, settings.faultsUntilMs * 0.9),
    aim: random.chance(0.45) ? random.pick(PROTOCOL_STEPS) : null,
    delayMs,
    replica: random.int(settings.replicas),
    actor: random.chance(0.7),
    master: random.int(settings.masters),
    change,
  }
  if (id === 0 || random.chance(0.6)) return fault
  // Faults cluster: soon after the previous one, and for the same parties.
  const { at, aim, replica, actor, master } = drawFault(seed, id - 1, settings)
  const together = { replica, master, actor, at: at + random.between(0, 6_000) }
  return random.chance(0.5) ? { ...fault, ...together, at, aim } : { ...fault, ...together, aim: null }
}

function drawChange(random: Random, settings: Settings): Change {
  const lease = leaseMs(settings)
  const short = (): number => random.between(50, 1_500)
  const some = (): number =>
    random.pick([short, () => random.between(500, 8_000), () => random.between(0.5, 2.5) * lease])()
  const weights: Partial<Record<FaultKind, number>> = weightsOf(settings)
  for (const kind of settings.withoutFaults) delete weights[kind]
  const kind = random.weighted(weights)
  const hour = (): number => random.pick([-1, 1]) * random.pick([2_000, 20_000, 600_000, 3_600_000])
  switch (kind) {
    case 'stall':
      return { kind, ms: some() }
    case 'crash':
    case 'restart':
      return { kind, downMs: random.between(100, 5_000) }
    case 'wall-clock':
    case 'redis-clock':
      return { kind, byMs: hour() }
    case 'change-secrets':
      return { kind, pauseMs: random.between(500, 5_000) }
    case 'freeze-master':
      return { kind, ms: some() }
    case 'failover':
      return {
        kind,
        lostMs: random.chance(0.4) ? 0 : random.between(0, 1_500),
        frozenMs: random.chance(0.5) ? 0 : random.between(500, 5_000),
        staysMs: random.chance(0.5) ? 0 : random.between(0, 4_000),
      }
    case 'restart-master':
      return {
        kind,
        keeps: random.weighted({ everything: 5, 'all but the last second': 4, nothing: 1 }),
        downMs: random.between(50, 4_000),
      }
    case 'refuse-writes':
      return { kind, error: random.pick(['READONLY no writes here', 'OOM no memory left']), ms: some() }
    case 'refuse-connections':
    case 'cut':
      return { kind, ms: some() }
    case 'reset':
      return { kind }
    case 'slow-redis':
      return {
        kind,
        ms: some(),
        byMs: random.pick([20, 150, 300, 600, 1_200]),
        everybody: random.chance(0.5),
      }
    case 'break-before':
    case 'break-after':
      return { kind, command: random.chance(0.2) ? 'touch' : random.pick(COMMANDS) }
    case 'auth':
      return {
        kind,
        ms: random.between(2_000, 60_000),
        share: random.pick([0.3, 0.7, 1]),
        behaviour: drawBehaviour(random, settings),
      }
    case 'auth-refuses':
      return { kind, ms: random.between(1_000, 40_000) }
    case 'auth-cut':
      return { kind, ms: random.between(500, 3 * lease) }
    case 'auth-delay':
      return { kind, ms: random.between(2_000, 40_000), byMs: random.between(100, 2 * lease) }
    case 'resource-refuses':
    case 'resource-down':
      return { kind, ms: random.between(200, 10_000) }
    case 'resource-slow':
      return { kind, ms: random.between(1_000, 20_000), byMs: random.between(100, 5_000) }
    case 'user-revokes':
    case 'sign-out-elsewhere':
      return { kind, browser: random.int(settings.browsers) }
  }
}

function drawBehaviour(random: Random, { timeoutMs }: Settings): Behaviour {
  switch (random.weighted({ slow: 5, loses: 4, error: 5 })) {
    case 'slow':
      return { kind: 'slow', ms: random.between(0.2, 3) * timeoutMs, rotatesFirst: random.chance(0.5) }
    case 'loses':
      return { kind: 'loses', rotates: random.chance(0.4), connection: random.pick(['breaks', 'hangs']) }
    case 'error':
      return random.pick<Behaviour>([
        { kind: 'error', status: 503, error: null, retryAfterSeconds: 1 + random.int(20), rotates: false },
        { kind: 'error', status: 503, error: null, retryAfterSeconds: null, rotates: random.chance(0.3) },
        { kind: 'error', status: 502, error: null, retryAfterSeconds: null, rotates: random.chance(0.3) },
        { kind: 'error', status: 500, error: null, retryAfterSeconds: null, rotates: false },
        { kind: 'error', status: 429, error: null, retryAfterSeconds: 1 + random.int(20), rotates: false },
        { kind: 'error', status: 400, error: 'invalid_request', retryAfterSeconds: null, rotates: false },
        { kind: 'error', status: 401, error: 'invalid_client', retryAfterSeconds: null, rotates: false },
      ])
  }
}

/** Applies the faults of a schedule to a deployment, each at its time. */
export function scheduleFaults(deployment: Deployment, faults: readonly Fault[]): void {
  const { clock } = deployment
  const aimed: Fault[] = []
  for (const fault of faults) {
    clock.in(fault.at, null, () => {
      if (fault.aim === null) apply(deployment, fault, fault.replica)
      else aimed.push(fault)
    })
  }
  deployment.onStep = (step, index) => {
    if (aimed.length === 0 || clock.now > deployment.settings.faultsUntilMs) return
    for (const fault of [...aimed]) {
      if (fault.aim !== step) continue
      aimed.splice(aimed.indexOf(fault), 1)
      const target = fault.actor ? index : fault.replica
      if (fault.delayMs === 0) apply(deployment, fault, target)
      else clock.in(fault.delayMs, null, () => apply(deployment, fault, target))
    }
  }
}

function apply(deployment: Deployment, fault: Fault, index: number): void {
  const { clock, settings, checker, authorizationServer, resourceServer } = deployment
  const { master, change } = fault
  if (clock.now > settings.faultsUntilMs) return
  deployment.injected.set(change.kind, (deployment.injected.get(change.kind) ?? 0) + 1)
  checker.note('FAULT', describe(fault, index))
  const disturbs = !/^(?:auth|resource|user|sign)/.test(change.kind)
  /** Undoes the fault, at the latest when the time for faults ends. */
  const until = (ms: number, undo: () => void): void => {
    const endsIn = Math.min(ms, Math.max(0, settings.faultsUntilMs - clock.now))
    if (disturbs) deployment.disturb(endsIn)
    clock.in(endsIn, null, () => {
      checker.note('FAULT', `${fault.id} is over`)
      undo()
    })
  }
  if (disturbs) deployment.disturb(0)
  switch (change.kind) {
    case 'stall': {
      const replica = deployment.replicas[index]!
      if (!replica.alive || replica.stalled) return
      replica.stall()
      until(change.ms, () => replica.resume())
      return
    }
    case 'crash':
      deployment.crash(index, change.downMs)
      return
    case 'restart':
      deployment.restart(index, change.downMs)
      return
    case 'wall-clock':
      deployment.stepWallClock(index, change.byMs)
      return
    case 'change-secrets':
      deployment.changeSecrets(change.pauseMs)
      return
    case 'freeze-master':
      deployment.freeze(master)
      until(change.ms, () => deployment.thaw(master))
      return
    case 'failover':
      deployment.failOver(master, change)
      return
    case 'restart-master':
      deployment.restartMaster(master, change)
      return
    case 'refuse-writes': {
      const server = deployment.masters[master]!
      server.refusesWrites = change.error
      until(change.ms, () => {
        server.refusesWrites = null
      })
      return
    }
    case 'refuse-connections': {
      const server = deployment.masters[master]!
      server.refusesConnections = true
      deployment.breakConnections(server)
      until(change.ms, () => {
        server.refusesConnections = false
      })
      return
    }
    case 'redis-clock':
      deployment.stepRedisClock(master, change.byMs)
      return
    case 'reset':
      deployment.replicas[index]!.transport.commands[master]!.breakSoon('reset')
      return
    case 'cut': {
      const faults = deployment.faults(master, index)
      faults.cut += 1
      until(change.ms, () => {
        faults.cut -= 1
        deployment.flush(master, index)
      })
      return
    }
    case 'slow-redis': {
      const indexes = change.everybody ? deployment.replicas.map((_, at) => at) : [index]
      for (const one of indexes) deployment.faults(master, one).slowMs += change.byMs
      until(change.ms, () => {
        for (const one of indexes) deployment.faults(master, one).slowMs -= change.byMs
      })
      return
    }
    case 'break-before': {
      const { breakBefore } = deployment.faults(master, index)
      breakBefore.add(change.command)
      until(settings.faultsUntilMs, () => void breakBefore.delete(change.command))
      return
    }
    case 'break-after': {
      const { breakAfter } = deployment.faults(master, index)
      breakAfter.add(change.command)
      until(settings.faultsUntilMs, () => void breakAfter.delete(change.command))
      return
    }
    case 'auth': {
      const { share, behaviour } = change
      const active = { share, behaviour }
      authorizationServer.behaviours.add(active)
      until(change.ms, () => void authorizationServer.behaviours.delete(active))
      return
    }
    case 'auth-refuses':
      authorizationServer.refusesConnections += 1
      until(change.ms, () => {
        authorizationServer.refusesConnections -= 1
      })
      return
    case 'auth-cut': {
      const faults = authorizationServer.faultsOf(index)
      faults.cut += 1
      until(change.ms, () => {
        faults.cut -= 1
        if (faults.cut === 0) authorizationServer.flush(index)
      })
      return
    }
    case 'auth-delay': {
      const faults = authorizationServer.faultsOf(index)
      faults.delayMs += change.byMs
      until(change.ms, () => {
        faults.delayMs -= change.byMs
      })
      return
    }
    case 'resource-refuses':
      resourceServer.refusesAll += 1
      until(change.ms, () => {
        resourceServer.refusesAll -= 1
      })
      return
    case 'resource-down':
      resourceServer.down += 1
      until(change.ms, () => {
        resourceServer.down -= 1
      })
      return
    case 'resource-slow':
      resourceServer.slowMs += change.byMs
      until(change.ms, () => {
        resourceServer.slowMs -= change.byMs
      })
      return
    case 'user-revokes':
      deployment.browsers[change.browser]!.revoke()
      return
    case 'sign-out-elsewhere':
      deployment.browsers[change.browser]!.signOutElsewhere(deployment.replicas[index]!)
      return
  }
}

/** One line for a reader. */
export function describe(
  { id, at, aim, delayMs, replica, actor, master, change }: Fault,
  target = replica,
): string {
  const { kind, ...rest } = change
  const values = Object.entries(rest).map(
    ([name, value]) =>
      `${name}=${typeof value === 'number' ? Math.round(value * 10) / 10 : JSON.stringify(value)}`,
  )
  const when =
    aim === null
      ? ''
      : `, ${Math.round(delayMs)} ms after the first "${aim}"${actor ? ' of any replica' : ''}`
  return `${id}: ${kind} ${values.join(' ')} (replica ${target}, master ${master}, from ${Math.round(at)} ms${when})`
}
