import type { Mode } from './history.ts'
import { createRandom, type Random } from './random.ts'
import { REPLICAS } from './settings.ts'

/** One fault as planned: what it is, when it begins, how long it lasts, and numbers that choose its details. */
export interface PlannedFault {
  readonly kind: FaultKind
  /** Milliseconds after the begin of the round. */
  readonly atMs: number
  readonly lastsMs: number
  readonly replica: number
  /** In [0, 1): chooses the shard, the variant and the like. */
  readonly draws: readonly [number, number]
}

interface KindRules {
  readonly weight: number
  readonly modes: readonly Mode[]
  /** How long it lasts, in milliseconds. */
  readonly lasts: readonly [number, number]
  /** The resources that it occupies, so that faults do not undo each other. `{r}` stands for the replica. */
  readonly occupies: readonly string[]
  /** Minimum pause after its end before another fault may occupy the same resource. */
  readonly recoversMs: number
}

const ALL: readonly Mode[] = ['single', 'sentinel', 'cluster']
const REPLICATED: readonly Mode[] = ['sentinel', 'cluster']

function rules(
  weight: number,
  lasts: readonly [number, number],
  {
    occupies,
    modes = ALL,
    recoversMs = 500,
  }: { occupies: readonly string[]; modes?: readonly Mode[]; recoversMs?: number },
): KindRules {
  return { weight, lasts, occupies, modes, recoversMs }
}

const PROCESS = { occupies: ['process {r}'] }
const STORE_LINK = { occupies: ['store link {r}'] }
const TOKEN_LINK = { occupies: ['token link {r}'] }
const RESOURCE_LINK = { occupies: ['resource link {r}'] }
const STORE = { occupies: ['store'] }
const TOKEN_ENDPOINT = { occupies: ['token endpoint'] }
const RESOURCE = { occupies: ['resource server'] }

/** Every fault, how often it is chosen, and where it can be made. */
export const KINDS = {
  'kill a replica': rules(8, [300, 4_000], { ...PROCESS, recoversMs: 3_000 }),
  'freeze a replica': rules(8, [1_000, 20_000], PROCESS),
  'stop a replica': rules(6, [500, 2_000], { ...PROCESS, recoversMs: 4_000 }),
  'change the secrets': rules(2, [12_000, 12_000], {
    occupies: ['process 0', 'process 1', 'process 2'],
    recoversMs: 9_000,
  }),

  'cut a replica off from Redis': rules(6, [500, 10_000], STORE_LINK),
  'freeze the network to Redis': rules(6, [500, 10_000], STORE_LINK),
  'slow the network to Redis': rules(4, [2_000, 10_000], STORE_LINK),
  'hold the replies of Redis': rules(5, [500, 6_000], STORE_LINK),
  'reset the connections to Redis': rules(4, [100, 200], STORE_LINK),

  'cut a replica off from the token endpoint': rules(4, [500, 8_000], TOKEN_LINK),
  'refuse connections to the token endpoint': rules(3, [500, 8_000], TOKEN_LINK),
  'freeze the network to the token endpoint': rules(5, [1_000, 10_000], TOKEN_LINK),
  'delay requests to the token endpoint': rules(4, [2_000, 8_000], TOKEN_LINK),
  'hold the responses of the token endpoint': rules(4, [500, 8_000], TOKEN_LINK),
  'lose token requests': rules(3, [4_000, 8_000], TOKEN_LINK),
  'lose token responses': rules(2, [4_000, 8_000], TOKEN_LINK),

  'cut a replica off from the resource server': rules(2, [500, 5_000], RESOURCE_LINK),
  'freeze the network to the resource server': rules(2, [500, 5_000], RESOURCE_LINK),
  'slow the network to the resource server': rules(2, [1_000, 6_000], RESOURCE_LINK),

  'freeze the master for a moment': rules(6, [200, 700], STORE),
  'freeze the master': rules(8, [3_000, 9_000], { ...STORE, recoversMs: 6_000 }),
  'kill the master': rules(6, [300, 6_000], { ...STORE, recoversMs: 6_000 }),
  'kill the clients of Redis': rules(4, [100, 200], STORE),
  'pause the clients of Redis': rules(4, [300, 3_000], STORE),
  'Redis is out of memory': rules(4, [1_000, 6_000], STORE),
  'Redis wants replicas that are not there': rules(3, [1_000, 6_000], STORE),
  'Redis is read-only': rules(3, [1_000, 6_000], { ...STORE, modes: ['single'] }),
  'Redis sleeps': rules(3, [300, 2_500], STORE),
  'a failover by command': rules(5, [1_000, 2_000], { ...STORE, modes: REPLICATED, recoversMs: 5_000 }),
  'a failover after the replication was cut': rules(5, [4_000, 8_000], {
    ...STORE,
    modes: REPLICATED,
    recoversMs: 7_000,
  }),
  'kill a Sentinel': rules(3, [1_000, 8_000], { occupies: ['sentinels'], modes: ['sentinel'] }),
  'move a slot': rules(5, [500, 4_000], { ...STORE, modes: ['cluster'] }),
  'cut the bus of a node': rules(4, [250, 450], { occupies: ['bus'], modes: ['cluster'] }),
  'silence the bus of a node': rules(3, [500, 1_500], { occupies: ['bus'], modes: ['cluster'] }),

  'the token endpoint is slow': rules(5, [3_000, 9_000], TOKEN_ENDPOINT),
  'the token endpoint hangs': rules(3, [2_000, 8_000], TOKEN_ENDPOINT),
  'the token endpoint responds with errors': rules(5, [1_000, 8_000], TOKEN_ENDPOINT),
  'the token endpoint drops requests': rules(3, [2_000, 6_000], TOKEN_ENDPOINT),
  'the token endpoint drops responses': rules(1, [1_000, 3_000], TOKEN_ENDPOINT),
  'the token endpoint is away': rules(4, [1_000, 9_000], {
    occupies: ['token endpoint', 'token link 0', 'token link 1', 'token link 2'],
  }),

  'the resource server refuses every token': rules(3, [500, 3_000], RESOURCE),
  'the resource server is slow': rules(2, [1_000, 5_000], RESOURCE),
  'the resource server responds with errors': rules(2, [1_000, 5_000], RESOURCE),
} as const satisfies Record<string, KindRules>

export type FaultKind = keyof typeof KINDS

/** Whether it strikes Redis, or a replica's way to it. */
export function isOfRedis(kind: FaultKind): boolean {
  return KINDS[kind].occupies.some((name) => OF_REDIS.has(name))
}

const OF_REDIS: ReadonlySet<string> = new Set([...STORE.occupies, ...STORE_LINK.occupies, 'bus'])

interface PlanOptions {
  readonly seed: string
  readonly mode: Mode
  readonly round: number
  /** Every fault of the round has ended by then. */
  readonly lengthMs: number
  /** Only these kinds; default: all that the mode knows. */
  readonly kinds?: readonly FaultKind[]
}

/** The faults of one round, in order of their begin. Depends on nothing but the options. */
export function planRound({ seed, mode, round, lengthMs, kinds }: PlanOptions): PlannedFault[] {
  const random = createRandom(`${seed} ${mode} ${round}`)
  const candidates = (kinds ?? (Object.keys(KINDS) as FaultKind[])).filter((kind) =>
    (KINDS[kind].modes as readonly Mode[]).includes(mode),
  )
  const wanted = Math.max(1, Math.round((lengthMs / 1_000) * (0.25 + 0.35 * random.next())))
  const occupied: { what: string; from: number; until: number }[] = []
  const planned: PlannedFault[] = []
  for (let attempt = 0; planned.length < wanted && attempt < wanted * 8; attempt += 1) {
    const kind = pickKind(candidates, random)
    const { lasts, occupies, recoversMs }: KindRules = KINDS[kind]
    const replica = random.integer(0, REPLICAS - 1)
    const draws = [random.next(), random.next()] as const
    const lastsMs = Math.min(random.integer(...(lasts as [number, number])), lengthMs - 500)
    if (lastsMs < lasts[0]) continue
    const atMs = random.integer(200, Math.max(200, lengthMs - lastsMs))
    const names = occupies.map((name) => name.replace('{r}', String(replica)))
    const until = atMs + lastsMs + recoversMs
    const clashes = occupied.some(
      (other) => names.includes(other.what) && atMs < other.until && other.from < until,
    )
    if (clashes) continue
    for (const what of names) occupied.push({ what, from: atMs, until })
    planned.push({ kind, atMs, lastsMs, replica, draws })
  }
  return planned.sort((one, other) => one.atMs - other.atMs)
}

function pickKind(candidates: readonly FaultKind[], random: Random): FaultKind {
  const total = candidates.reduce((sum, kind) => sum + KINDS[kind].weight, 0)
  let left = random.next() * total
  for (const kind of candidates) {
    left -= KINDS[kind].weight
    if (left < 0) return kind
  }
  return candidates.at(-1)!
}
