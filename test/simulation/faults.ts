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

const COMMANDS: readonly StoreCommand[] = [
  ...(['beginRefresh', 'renewLease', 'releaseLease', 'replaceTokens', 'end', 'create'] as const),
  ...(['confirm', 'schedule', 'claimDue', 'touch', 'read', 'readState'] as const),
]

/** Where a fault strikes. */
interface Target {
  /** Index of the replica. */
  readonly index: number
  readonly master: number
  /** Undoes the fault after so long, at the latest when the time for faults ends. */
  readonly until: (ms: number, undo: () => void) => void
  /** Raises a number for so long, and calls `then` after that. */
  readonly raise: <Name extends string>(
    counters: Record<Name, number>,
    name: Name,
    change: { ms: number; by?: number; then?: () => void },
  ) => void
}

type FleetKind = Pick<Settings, 'topology' | 'clocksStep'>

/** A kind of fault: how often it is drawn, with which values, and what it does. */
interface Kind<Values> {
  readonly weight: number | ((fleet: FleetKind) => number)
  readonly draw: (random: Random, settings: Settings) => Values
  readonly apply: (deployment: Deployment, values: Values, target: Target) => void
}

/** Infers the type of the values. */
function kind<Values extends object>(
  weight: Kind<Values>['weight'],
  draw: Kind<Values>['draw'],
  apply: Kind<Values>['apply'],
): Kind<Values> {
  return { weight, draw, apply }
}

function some(random: Random, settings: Settings): number {
  const short = (): number => random.between(50, 1_500)
  const long = (): number => random.between(0.5, 2.5) * leaseMs(settings)
  return random.pick([short, () => random.between(500, 8_000), long])()
}

const hour = (random: Random): number =>
  random.pick([-1, 1]) * random.pick([2_000, 20_000, 600_000, 3_600_000])
const someMs = (random: Random, settings: Settings) => ({ ms: some(random, settings) })
const downMs = (random: Random) => ({ downMs: random.between(100, 5_000) })
const command = (random: Random) => ({
  command: random.chance(0.2) ? ('touch' as const) : random.pick(COMMANDS),
})
const between = (low: number, high: number) => (random: Random) => ({ ms: random.between(low, high) })
const nothing = () => ({})
const browser = (random: Random, { browsers }: Settings) => ({ browser: random.int(browsers) })
const ifClocksStep = (weight: number) => (fleet: FleetKind) => (fleet.clocksStep ? weight : 0)

/** The connection breaks before or after the next command of a name. */
const breaks = (weight: number, when: 'breakBefore' | 'breakAfter') =>
  kind(weight, command, (deployment, { command }, { index, master, until }) => {
    const commands = deployment.faults(master, index)[when]
    commands.add(command)
    until(deployment.settings.faultsUntilMs, () => void commands.delete(command))
  })

const KINDS = {
  stall: kind(14, someMs, ({ replicas }, { ms }, { index, until }) => {
    const replica = replicas[index]!
    if (!replica.alive || replica.stalled) return
    replica.stall()
    until(ms, () => replica.resume())
  }),
  crash: kind(7, downMs, (deployment, { downMs }, { index }) => deployment.crash(index, downMs)),
  restart: kind(6, downMs, (deployment, { downMs }, { index }) => deployment.restart(index, downMs)),
  'wall-clock': kind(
    ifClocksStep(6),
    (random) => ({ byMs: hour(random) }),
    (deployment, { byMs }, { index }) => deployment.stepWallClock(index, byMs),
  ),
  'freeze-master': kind(4, someMs, (deployment, { ms }, { master, until }) => {
    deployment.masters[master]!.frozen = true
    until(ms, () => deployment.thaw(master))
  }),
  failover: kind(
    ({ topology }) => (topology === 'single' ? 0 : 9),
    (random) => ({
      lostMs: random.chance(0.4) ? 0 : random.between(0, 1_500),
      frozenMs: random.chance(0.5) ? 0 : random.between(500, 5_000),
      staysMs: random.chance(0.5) ? 0 : random.between(0, 4_000),
    }),
    (deployment, values, { master }) => deployment.failOver(master, values),
  ),
  'restart-master': kind(
    ({ topology }) => (topology === 'cluster' ? 1 : 3),
    (random) => ({
      keeps: random.weighted({ everything: 5, 'all but the last second': 4, nothing: 1 }),
      downMs: random.between(50, 4_000),
    }),
    (deployment, values, { master }) => deployment.restartMaster(master, values),
  ),
  'refuse-writes': kind(
    4,
    (random, settings) => ({
      error: random.pick(['READONLY no writes here', 'OOM no memory left']),
      ms: some(random, settings),
    }),
    ({ masters }, { error, ms }, { master, until }) => {
      const server = masters[master]!
      server.refusesWrites = error
      until(ms, () => {
        server.refusesWrites = null
      })
    },
  ),
  'redis-clock': kind(
    ifClocksStep(5),
    (random) => ({ byMs: hour(random) }),
    (deployment, { byMs }, { master }) => deployment.stepRedisClock(master, byMs),
  ),
  reset: kind(6, nothing, ({ replicas }, _, { index, master }) =>
    replicas[index]!.transport.commands[master]!.breakSoon(),
  ),
  cut: kind(8, someMs, (deployment, { ms }, { index, master, raise }) => {
    const then = (): void => deployment.replicas[index]!.transport.commands[master]!.flush()
    raise(deployment.faults(master, index), 'cut', { ms, then })
  }),
  'slow-redis': kind(
    4,
    (random, settings) => ({
      ms: some(random, settings),
      byMs: random.pick([20, 150, 300, 600, 1_200]),
      everybody: random.chance(0.5),
    }),
    (deployment, { ms, byMs, everybody }, { index, master, until }) => {
      const indexes = everybody ? deployment.replicas.map((_, at) => at) : [index]
      for (const one of indexes) deployment.faults(master, one).slowMs += byMs
      until(ms, () => {
        for (const one of indexes) deployment.faults(master, one).slowMs -= byMs
      })
    },
  ),
  'break-before': breaks(6, 'breakBefore'),
  'break-after': breaks(8, 'breakAfter'),
  auth: kind(
    22,
    (random, settings) => ({
      ms: random.between(2_000, 60_000),
      share: random.pick([0.3, 0.7, 1]),
      behaviour: drawBehaviour(random, settings),
    }),
    ({ authorizationServer: { behaviours } }, { ms, share, behaviour }, { until }) => {
      const active = { share, behaviour }
      behaviours.add(active)
      until(ms, () => void behaviours.delete(active))
    },
  ),
  'auth-refuses': kind(3, between(1_000, 40_000), ({ authorizationServer }, { ms }, { raise }) =>
    raise(authorizationServer, 'refusesConnections', { ms }),
  ),
  'auth-cut': kind(
    5,
    (random, settings) => ({ ms: random.between(500, 3 * leaseMs(settings)) }),
    ({ authorizationServer }, { ms }, { index, raise }) => {
      const faults = authorizationServer.faults[index]!
      const then = (): void => {
        if (faults.cut === 0) authorizationServer.flush(index)
      }
      raise(faults, 'cut', { ms, then })
    },
  ),
  'auth-delay': kind(
    3,
    (random, settings) => ({
      ms: random.between(2_000, 40_000),
      byMs: random.between(100, 2 * leaseMs(settings)),
    }),
    ({ authorizationServer }, { ms, byMs }, { index, raise }) =>
      raise(authorizationServer.faults[index]!, 'delayMs', { ms, by: byMs }),
  ),
  'resource-refuses': kind(3, between(200, 10_000), ({ resourceServer }, { ms }, { raise }) =>
    raise(resourceServer, 'refusesAll', { ms }),
  ),
  'resource-slow': kind(
    2,
    (random) => ({ ms: random.between(1_000, 20_000), byMs: random.between(100, 5_000) }),
    ({ resourceServer }, { ms, byMs }, { raise }) => raise(resourceServer, 'slowMs', { ms, by: byMs }),
  ),
  'user-revokes': kind(2, browser, ({ browsers }, { browser }) => browsers[browser]!.revoke()),
  /** By another replica than the one in question, which is then called with what other pages still have. */
  'sign-out-elsewhere': kind(4, browser, ({ browsers, replicas }, { browser }, { index }) =>
    browsers[browser]!.signOutElsewhere(replicas[index]!),
  ),
}

export type FaultKind = keyof typeof KINDS

type Change = {
  [Name in FaultKind]: { kind: Name } & ReturnType<(typeof KINDS)[Name]['draw']>
}[FaultKind]

/** Every kind that some seed draws. */
export const FAULT_KINDS = Object.keys(KINDS) as FaultKind[]

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

function weightsOf(fleet: FleetKind): Record<FaultKind, number> {
  const weight = (name: FaultKind): number => {
    const { weight } = KINDS[name]
    return typeof weight === 'number' ? weight : weight(fleet)
  }
  return Object.fromEntries(FAULT_KINDS.map((name) => [name, weight(name)])) as Record<FaultKind, number>
}

/** Kinds that a history leaves out: with fewer kinds, each occurs more often and has deeper effects. */
export function drawWithoutFaults(random: Random, fleet: FleetKind): FaultKind[] {
  if (random.chance(0.4)) return []
  const weights = weightsOf(fleet)
  const kinds = FAULT_KINDS.filter((kind) => weights[kind] > 0)
  const without = kinds.filter(() => random.chance(0.7))
  return without.length === kinds.length ? [] : without
}

/** The faults of a seed. Each draws from a stream of its own, so leaving one out changes no other. */
export function drawFaults(seed: number, settings: Settings): Fault[] {
  if (settings.losesResponses) return drawLosses(seed)
  const faults = Array.from({ length: settings.faults }, (_, id) => drawFault(seed, id, settings))
  return settings.scenario ? [...faults, ...drawScenario(seed, faults.length, settings)] : faults
}

/** Of the first refresh, and of those of the next moments; perhaps the processes die that wait for them. */
function drawLosses(seed: number): Fault[] {
  const random = new Random(seed, 'losses')
  const dies = random.chance(0.5)
  const connection = dies ? 'hangs' : 'breaks'
  const behaviour = { kind: 'loses', rotates: random.chance(0.5), connection } as const
  const ms = dies ? 120_000 : random.between(500, 8_000)
  const fault = (id: number, change: Change, delayMs = 0): Fault => {
    return { id, at: 5_000, aim: 'request sent', delayMs, replica: 0, actor: true, master: 0, change }
  }
  const lost = fault(0, { kind: 'auth', ms, share: 1, behaviour })
  if (!dies) return [lost]
  // The second presentation follows when the first can have no response any more.
  const deaths = [random.between(100, 1_500), random.between(34_000, 60_000)]
  return [lost, ...deaths.map((delayMs, at) => fault(at + 1, { kind: 'crash', downMs: 100 }, delayMs))]
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
  const weights: Partial<Record<FaultKind, number>> = weightsOf(settings)
  for (const kind of settings.withoutFaults) delete weights[kind]
  const kind = random.weighted(weights)
  return { kind, ...KINDS[kind].draw(random, settings) } as Change
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
  const { clock, settings, checker } = deployment
  const { master, change } = fault
  if (clock.now > settings.faultsUntilMs) return
  deployment.injected.set(change.kind, (deployment.injected.get(change.kind) ?? 0) + 1)
  checker.note('FAULT', describe(fault, index))
  const disturbs = !/^(?:auth|resource|user|sign)/.test(change.kind)
  const until: Target['until'] = (ms, undo) => {
    const endsIn = Math.min(ms, Math.max(0, settings.faultsUntilMs - clock.now))
    if (disturbs) deployment.disturb(endsIn)
    else checker.platformDisturbedUntil = Math.max(checker.platformDisturbedUntil, clock.now + endsIn)
    clock.in(endsIn, null, () => {
      checker.note('FAULT', `${fault.id} is over`)
      undo()
    })
  }
  const raise: Target['raise'] = (counters, name, { ms, by = 1, then = () => {} }) => {
    counters[name] += by
    until(ms, () => {
      counters[name] -= by
      then()
    })
  }
  if (disturbs) deployment.disturb(0)
  const { apply } = KINDS[change.kind] as Kind<object>
  apply(deployment, change, { index, master, until, raise })
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
