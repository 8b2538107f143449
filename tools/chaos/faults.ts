import type { Sandbox } from '../../sandbox/sandbox.ts'
import type { Teardown } from '../../test/helpers/child.ts'
import type { RedisServer } from '../../test/helpers/redis.ts'
import { redisCommand } from '../../test/helpers/redis-command.ts'
import type { TcpProxy as Link } from '../../test/helpers/tcp-proxy.ts'
import { elapsed } from '../../test/helpers/wait.ts'
import { Random } from '../../test/simulation/random.ts'
import type { Replica } from './fleet.ts'
import type { Fault, Mode } from './history.ts'
import { type RedisUnderTest, repairSlots, type Shard } from './redis.ts'
import type { TokenGateway } from './token-gateway.ts'

/** The parts of a campaign that faults change. */
export interface FaultContext {
  readonly t: Teardown
  readonly replicas: readonly Replica[]
  readonly redis: RedisUnderTest
  readonly gateways: readonly TokenGateway[]
  readonly sandbox: Sandbox
}

/** A fault that has begun. */
interface Begun {
  readonly detail?: string
  /** Undoes it. */
  readonly end: () => Promise<unknown> | unknown
}

interface Kind {
  readonly strikes: Fault['strikes']
  /** It concerns all replicas, not one. */
  readonly ofAll?: boolean
  /** How often it is chosen, compared with others. */
  readonly weight: number
  /** How long it lasts, in milliseconds. */
  readonly lasts: readonly [number, number]
  /** Pause after its end before another fault strikes the same. */
  readonly recoversMs: number
  /** Default: all. */
  readonly modes?: readonly Mode[]
  /** `draw`, in [0, 1), chooses the shard, the variant and the like. Null if it is impossible now. */
  readonly begin: (
    context: FaultContext,
    planned: { replica: number; draw: number; lastsMs: number },
  ) => Promise<Begun | null> | Begun | null
}

const PROCESS = { strikes: 'process', recoversMs: 3_000 } as const
const NETWORK = { strikes: 'network to Redis', recoversMs: 500 } as const
const REDIS = { strikes: 'Redis', ofAll: true, recoversMs: 500 } as const
const FAILOVER = { ...REDIS, recoversMs: 7_000 } as const
const TOKEN = { strikes: 'token endpoint', recoversMs: 500 } as const
const REPLICATED: readonly Mode[] = ['sentinel', 'cluster']

/**
 * What the simulation cannot do: it has no processes, sockets, Lua and ioredis. Faults of what the servers of the
 * platform say are the simulation's.
 */
export const KINDS: Readonly<Record<string, Kind>> = {
  'kill a replica': {
    ...{ ...PROCESS, weight: 8, lasts: [300, 4_000] },
    async begin({ replicas }, { replica }) {
      const struck = replicas[replica]!
      if (!struck.isUp()) return null
      await struck.kill()
      return { end: struck.start }
    },
  },
  'freeze a replica': {
    ...{ ...PROCESS, weight: 8, lasts: [1_000, 12_000] },
    begin({ replicas }, { replica }) {
      const struck = replicas[replica]!
      if (!struck.isUp()) return null
      struck.freeze()
      return { end: struck.resume }
    },
  },
  'stop a replica': {
    ...{ ...PROCESS, weight: 8, lasts: [500, 2_000] },
    async begin({ replicas, gateways }, { replica }) {
      const struck = replicas[replica]!
      if (!struck.isUp()) return null
      // So that refreshes are under way at the signal, and their responses come afterwards.
      gateways[replica]!.set('replies-held')
      await elapsed(700)
      const stopped = struck.stop()
      await elapsed(300)
      gateways[replica]!.set('open')
      return { end: () => stopped.then(struck.start) }
    },
  },

  'cut a replica off from Redis': network(
    [500, 10_000],
    (link) => link.cut(),
    (link) => link.heal(),
  ),
  'freeze the network to Redis': network(
    [500, 10_000],
    (link) => link.freeze(),
    (link) => link.thaw(),
  ),
  'hold the replies of Redis': network(
    [500, 6_000],
    (link) => link.hold(),
    (link) => link.release(),
  ),

  'kill the clients of Redis': {
    ...{ ...REDIS, weight: 3, lasts: [100, 200] },
    begin: (context, { draw }) =>
      atShard(context, draw, async ({ master }) => {
        await master.cli('client', 'kill', 'type', 'normal', 'skipme', 'yes')
        return () => {}
      }),
  },
  'Redis refuses writes': {
    ...{ ...REDIS, weight: 4, lasts: [1_000, 6_000] },
    begin: (context, { draw }) =>
      atShard(context, draw, async ({ master }) => {
        // OOM, or NOREPLICAS.
        const [name, value] = (draw * 1_000) % 2 < 1 ? ['maxmemory', '1'] : ['min-replicas-to-write', '5']
        await master.cli('config', 'set', name!, value!)
        return () => master.cli('config', 'set', name!, '0')
      }),
  },
  'freeze the master': {
    ...{ ...FAILOVER, weight: 6, lasts: [300, 8_000] },
    begin: (context, { draw }) =>
      atShard(context, draw, ({ master }) => {
        master.pause()
        return master.resume
      }),
  },
  'kill the master': {
    ...{ ...FAILOVER, weight: 5, lasts: [500, 6_000] },
    begin: (context, { draw }) =>
      atShard(context, draw, async ({ master }) => {
        await master.kill()
        return master.restart
      }),
  },
  'a failover by command': {
    ...{ ...FAILOVER, weight: 5, lasts: [1_000, 2_000], modes: REPLICATED },
    begin: (context, { draw }) =>
      atShard(context, draw, async ({ replica }) => {
        const sentinel = context.redis.group?.sentinelPorts[0]
        if (sentinel !== undefined) await redisCommand(sentinel, ['sentinel', 'failover', 'mymaster'])
        else await replica!.cli('cluster', 'failover', ...((draw * 1_000) % 2 < 1 ? ['force'] : []))
        return () => {}
      }),
  },
  'a failover that loses the newest writes': {
    ...{ ...FAILOVER, weight: 5, lasts: [4_000, 8_000], modes: REPLICATED },
    begin: (context, { draw, lastsMs }) =>
      atShard(context, draw, async ({ master }) => {
        await master.cli('acl', 'setuser', 'default', '-psync', '-sync')
        await master.cli('client', 'kill', 'type', 'replica')
        // Writes from now on exist only on the master and are lost with it.
        await elapsed(Math.min(1_500, lastsMs / 3))
        await master.kill()
        // A restart begins with the access rules of the configuration.
        return master.restart
      }),
  },
  'freeze a Sentinel': {
    ...{ ...REDIS, weight: 3, lasts: [1_000, 8_000], modes: ['sentinel'] },
    begin({ redis }, { draw }) {
      const at = Math.floor(draw * 3)
      redis.group!.pauseSentinels(at)
      return { detail: `Sentinel ${at + 1}`, end: () => redis.group!.resumeSentinels(at) }
    },
  },
  'move a slot': {
    ...{ ...REDIS, weight: 5, lasts: [500, 4_000], modes: ['cluster'] },
    begin: moveSlot,
  },

  'cut a replica off from the token endpoint': gateway('cut'),
  'freeze the network to the token endpoint': gateway('frozen'),
  'hold the responses of the token endpoint': gateway('replies-held'),
  'lose token requests': loses('before', 5),
  'lose token responses': loses('after', 2),
}

function network(lasts: Kind['lasts'], strike: (link: Link) => void, heal: (link: Link) => void): Kind {
  return {
    ...{ ...NETWORK, weight: 6, lasts },
    begin({ redis }, { replica }) {
      redis.linksOf(replica).forEach(strike)
      return { end: () => redis.linksOf(replica).forEach(heal) }
    },
  }
}

function gateway(state: 'cut' | 'frozen' | 'replies-held'): Kind {
  return {
    ...{ ...TOKEN, weight: 4, lasts: [500, 8_000] },
    begin({ gateways }, { replica }) {
      gateways[replica]!.set(state)
      return { end: () => gateways[replica]!.set('open') }
    },
  }
}

/** The sandbox drops connections of refreshes, before its work or after it. */
function loses(point: 'before' | 'after', weight: number): Kind {
  return {
    ...{ ...TOKEN, ofAll: true, weight, lasts: [2_000, 5_000] },
    begin({ sandbox }, { draw }) {
      const times = 1 + Math.floor(draw * 3)
      sandbox.faults.set({ tokenEndpoint: { mode: 'drop', point, times, only: 'refresh_token' } })
      return { detail: `at most ${times}`, end: () => sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } }) }
    },
  }
}

/** `strike` returns what undoes the fault. */
async function atShard(
  { redis }: FaultContext,
  draw: number,
  strike: (shard: Shard) => Promise<Begun['end']> | Begun['end'],
): Promise<Begun | null> {
  const shards = await redis.shards()
  const shard = shards[Math.floor(draw * shards.length)]
  if (shard === undefined) return null
  return { detail: `port ${shard.master.port}`, end: await strike(shard) }
}

/** A slot that holds a session goes to another master; in between the keys are there and the slot still here. */
async function moveSlot({ t, redis }: FaultContext, { draw }: { draw: number }): Promise<Begun | null> {
  const masters = (await redis.shards()).map(({ master }) => master)
  const from = masters[Math.floor(draw * masters.length)]
  const to = masters.find((master) => master !== from)
  if (from === undefined || to === undefined) return null
  const names = (await sessionsOn(from)).split('\n').filter((name) => name.startsWith('bff:s:'))
  const name = names[Math.floor(draw * names.length)]
  if (name === undefined) return null
  const slot = Number(await from.cli('cluster', 'keyslot', name))
  const move = await redis.cluster!.beginMove(slot, to)
  return { detail: `slot ${slot}`, end: () => move.end().catch(() => repairSlots(t, redis.cluster!)) }
}

function sessionsOn(node: RedisServer): Promise<string> {
  return node.cli('scan', '0', 'match', 'bff:s:*', 'count', '500')
}

/** One fault as planned. */
export interface PlannedFault {
  readonly name: string
  /** Milliseconds after the begin of the round. */
  readonly atMs: number
  readonly lastsMs: number
  readonly replica: number
  readonly draw: number
}

/** The faults of one round, all over by `lengthMs`. Depends on nothing but the options. */
export function planRound(options: {
  seed: number
  mode: Mode
  round: number
  replicas: number
  lengthMs: number
  /** Only these kinds; default: all that the mode knows. */
  only?: readonly string[]
}): PlannedFault[] {
  const { seed, mode, round, replicas, lengthMs, only = Object.keys(KINDS) } = options
  const random = new Random(seed, `${mode} ${round}`)
  const known = only.filter((name) => KINDS[name]!.modes?.includes(mode) ?? true)
  const weights = Object.fromEntries(known.map((name) => [name, KINDS[name]!.weight]))
  const wanted = Math.max(1, Math.round((lengthMs / 1_000) * random.between(0.25, 0.6)))
  const planned: (PlannedFault & { what: string; until: number })[] = []
  for (let attempt = 0; planned.length < wanted && attempt < wanted * 8; attempt += 1) {
    const name = random.weighted(weights)
    const { strikes, lasts, recoversMs, ofAll = false } = KINDS[name]!
    const replica = random.int(replicas)
    const draw = random.next()
    const lastsMs = Math.min(random.between(...lasts), lengthMs - 500)
    if (lastsMs < lasts[0]) continue
    const atMs = random.between(200, Math.max(200, lengthMs - lastsMs))
    const until = atMs + lastsMs + recoversMs
    // Two faults of one thing would undo each other.
    const what = ofAll ? strikes : `${strikes} ${replica}`
    if (planned.some((other) => other.what === what && atMs < other.until && other.atMs < until)) continue
    planned.push({ name, atMs, lastsMs, replica, draw, what, until })
  }
  return planned.sort((one, other) => one.atMs - other.atMs)
}
