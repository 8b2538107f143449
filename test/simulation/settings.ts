import type { RefreshTiming } from '../../src/vault/refresh/rules.ts'
import { drawWithoutFaults, type FaultKind } from './faults.ts'
import { Random } from './random.ts'
import { SERVER_MODELS, type ServerModel } from './server-models.ts'

type Topology = 'single' | 'failover' | 'cluster'

/** How one simulated fleet is set up, drawn from its seed. */
export interface Settings {
  readonly topology: Topology
  /** Of Redis. */
  readonly masters: number
  readonly replicas: number
  readonly browsers: number
  readonly timing: RefreshTiming
  readonly timeoutMs: number
  /** For how long the operator says that a used refresh token is granted again. */
  readonly reuseMs: number
  readonly concurrency: number
  readonly idleMs: number
  readonly maxMs: number
  readonly cacheMs: number
  readonly shutdownMs: number
  /** Seconds that access tokens live. */
  readonly lives: readonly number[]
  /** Of sign-ins that bring no refresh token. */
  readonly withoutRefreshToken: number
  /** How the authorization server treats used refresh tokens. */
  readonly server: ServerModel
  /** Whether the operator has named the words in which that server reports a dead refresh token. */
  readonly namesDead: boolean
  /** The resource server asks the authorization server whether a token was revoked. */
  readonly introspects: boolean
  /** Faults may happen until then. */
  readonly faultsUntilMs: number
  readonly faults: number
  /** Also faults that make a scenario together. */
  readonly scenario: boolean
  /** Kinds of faults that do not happen. */
  readonly withoutFaults: readonly FaultKind[]
  /** Whether wall clocks may step. */
  readonly clocksStep: boolean
  /** Pause of a browser between two actions at most. */
  readonly thinkMs: number
  /** Many sessions that become due together, at an endpoint that works through its requests one by one; null: not so. */
  readonly crowd: Crowd | null
  /** A rolling update from version 0.2; null: none. */
  readonly update: Update | null
  /** The responses to refreshes of one moment are lost, at a server that grants a used refresh token again. */
  readonly losesResponses: boolean
  /** Also looks whether tokens are refreshed with no calls at all. */
  readonly watchesBackground: boolean
}

/** All replicas are away from `downAt` on, until every access token has expired. */
export interface Crowd {
  /** What the token endpoint needs for one request. */
  readonly serviceMs: number
  readonly downAt: number
  readonly downMs: number
}

/** The first replica is replaced at `at`, each further one `everyMs` after the one before it. */
export interface Update {
  readonly at: number
  readonly everyMs: number
}

/** Length of a lease. Like `resetAfterMs` it is not that of the server, which would move the checks with it. */
export function leaseMs({ timeoutMs }: Settings): number {
  return timeoutMs + 5_000
}

/** How long a presentation may have no response before its connection is reset. */
export function resetAfterMs({ timeoutMs }: Settings): number {
  return Math.max(3 * timeoutMs, 30_000)
}

/** The settings of a seed. */
export function drawSettings(seed: number): Settings {
  const settings = drawUsual(seed)
  const random = new Random(seed, 'crowd')
  if (random.chance(0.03)) return withCrowd(settings, drawCrowd(random, settings))
  const rare = new Random(seed, 'rare')
  switch (rare.weighted({ usual: 92, update: 5, losses: 3 })) {
    case 'usual':
      return settings
    case 'update':
      return withUpdate(settings, rare)
    case 'losses':
      return withLosses(settings, rare)
  }
}

function withUpdate(settings: Settings, random: Random): Settings {
  const replicas = Math.max(2, settings.replicas)
  const faultsUntilMs = Math.max(60_000, settings.faultsUntilMs)
  const at = random.between(10_000, faultsUntilMs / 2)
  const update = { at, everyMs: random.between(0, (faultsUntilMs / 2 / replicas) * 0.9) }
  return { ...settings, replicas, faultsUntilMs, update }
}

/** Servers that grant a used refresh token again for longer than two leases. */
const LENIENT = SERVER_MODELS.filter(({ rotates, graceSeconds }) => rotates && graceSeconds > 120)

function withLosses(settings: Settings, random: Random): Settings {
  const server = random.pick(LENIENT)
  return {
    ...settings,
    losesResponses: true,
    topology: 'single',
    masters: 1,
    replicas: 1 + random.int(2),
    browsers: 6,
    timing: { aheadSeconds: 300, thresholdSeconds: 30 },
    timeoutMs: 1_000,
    reuseMs: server.graceSeconds * 1_000,
    concurrency: 64,
    idleMs: 7_200_000,
    maxMs: 43_200_000,
    lives: [600],
    withoutRefreshToken: 0,
    server,
    faultsUntilMs: 700_000,
    scenario: false,
    clocksStep: false,
    // Sessions last until they are refreshed.
    thinkMs: 200_000,
    watchesBackground: false,
  }
}

/** A crowd of sessions, and what the token endpoint needs for one of them. */
export interface CrowdSize {
  readonly sessions: number
  readonly replicas: number
  readonly serviceMs: number
}

/** With many replicas the first requests of all take a little longer than one may be open at another endpoint. */
export function drawCrowd(random: Random, { timeoutMs }: Pick<Settings, 'timeoutMs'>): CrowdSize {
  const replicas = 1 + random.int(4)
  const serviceMs = random.between(0.002, random.pick([0.03, 0.1, 0.3])) * timeoutMs
  return { sessions: 30 + random.int(90), replicas, serviceMs: Math.min(serviceMs, 33_000 / 8 / replicas) }
}

/** Settings under which only the crowd is wrong. */
export function withCrowd(settings: Settings, { sessions, replicas, serviceMs }: CrowdSize): Settings {
  // Long enough for all to be refreshed twice before the first is due again.
  const lifeMs = Math.max(60_000, Math.ceil((sessions * serviceMs * 3) / 1_000) * 1_000)
  const crowd = { serviceMs, downAt: lifeMs / 3, downMs: lifeMs }
  return {
    ...settings,
    crowd,
    topology: 'single',
    masters: 1,
    replicas,
    browsers: sessions,
    timing: { aheadSeconds: 300, thresholdSeconds: 30 },
    concurrency: 64,
    idleMs: 7_200_000,
    maxMs: 43_200_000,
    lives: [lifeMs / 1_000],
    withoutRefreshToken: 0,
    reuseMs: 0,
    server: STRICTEST,
    namesDead: true,
    faults: 0,
    scenario: false,
    clocksStep: false,
    thinkMs: 15_000,
    watchesBackground: false,
    // By then a server that is never idle is through, even if each takes longer than on average.
    faultsUntilMs: crowd.downAt + crowd.downMs + sessions * serviceMs * 1.1 + CROWD_SLACK_MS,
  }
}

/** What an operator sets for such a server, as docs/servers.md has it. */
function reuseMsOf({ rotates, untilUsed, graceSeconds }: ServerModel): number {
  return (rotates && !untilUsed ? graceSeconds : 3_600) * 1_000
}

const STRICTEST = SERVER_MODELS.find(({ name }) => name === 'keycloak, rotation')!

/** Time for the replicas to start, and for the first requests after a pause of theirs. */
const CROWD_SLACK_MS = 15_000

function drawUsual(seed: number): Settings {
  const random = new Random(seed, 'settings')
  const topology = random.weighted<Topology>({ single: 3, failover: 4, cluster: 3 })
  const length = random.weighted({ short: 93, long: 3, calm: 4 })
  const calm = length === 'calm'
  const limits = !calm && random.chance(0.18)
  const faultsUntilMs =
    length === 'short'
      ? random.between(30_000, 120_000)
      : length === 'long'
        ? 420_000
        : random.between(3_000_000, 6_000_000)
  const clocksStep = !limits && random.chance(0.3)
  // A server that revokes on reuse is where a mistake costs most.
  const server = random.chance(0.4) ? STRICTEST : random.pick(SERVER_MODELS)
  const idleMs = limits ? random.pick([30_000, 60_000, 120_000]) : 7_200_000
  return {
    topology,
    masters: topology === 'cluster' ? 2 + random.int(2) : 1,
    replicas: calm
      ? random.chance(0.2)
        ? 2
        : 1
      : Number(random.weighted({ 1: 3, 2: 12, 3: 5, 4: 1, 5: 1 })),
    browsers: calm ? 2 : 2 + random.int(4),
    timing: random.pick([
      { aheadSeconds: 300, thresholdSeconds: 30 },
      { aheadSeconds: 300, thresholdSeconds: 30 },
      { aheadSeconds: 20, thresholdSeconds: 5 },
    ]),
    timeoutMs: random.pick([1_000, 2_000, 5_000, 10_000, 10_000]),
    reuseMs: random.chance(0.8) ? reuseMsOf(server) : 0,
    concurrency: random.pick([64, 64, 4, 2]),
    idleMs,
    maxMs: limits ? random.pick([60_000, 150_000, 300_000]) : 43_200_000,
    shutdownMs: 20_000,
    lives: calm
      ? [600, 3_600]
      : random.pick([[60], [15, 30], [20, 90], [12, 45, 300], [20], [40, 0], [3, 30]]),
    withoutRefreshToken: random.chance(0.2) ? 0.2 : 0,
    server,
    namesDead: random.chance(0.7),
    introspects: random.chance(0.5),
    faultsUntilMs,
    faults: calm ? random.int(3) : random.int(16),
    clocksStep,
    scenario: !calm && random.chance(0.5),
    withoutFaults: drawWithoutFaults(random, { topology, clocksStep }),
    thinkMs: calm ? 240_000 : random.pick([1_000, 5_000, 15_000]),
    watchesBackground: random.chance(0.2),
    crowd: null,
    update: null,
    losesResponses: false,
    cacheMs: random.pick([0, 100, 1_000, 1_000, 1_000, 5_000]),
  }
}
