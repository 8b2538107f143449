import { randomBytes } from 'node:crypto'
import type { Faults, Misbehaviour, ResourceMisbehaviour } from '../../sandbox/faults.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { elapsed } from '../../test/helpers/wait.ts'
import type { Fleet } from './fleet.ts'
import type { Clock, Fault, FaultArea, History } from './history.ts'
import type { Link } from './network.ts'
import type { FaultKind, PlannedFault } from './plan.ts'
import type { DataNode, RedisDeployment } from './redis-deployment.ts'
import { TOKEN_TIMEOUT_MS } from './settings.ts'
import type { TokenGateway } from './token-gateway.ts'

/** The parts of a campaign that faults change. */
export interface FaultContext {
  readonly fleet: Fleet
  readonly redis: RedisDeployment
  readonly gateways: readonly TokenGateway[]
  readonly resourceLinks: readonly Link[]
  readonly sandbox: Sandbox
  readonly history: History
  readonly clock: Clock
}

/** The effect of a fault, and how to undo it. */
interface AppliedFault {
  readonly area: FaultArea
  readonly replica?: number
  readonly node?: string
  readonly detail?: string
  /** Undoes the fault at its end. Missing for faults without a duration. */
  readonly heal?: () => Promise<void> | void
}

/** Applies the fault; null if it is impossible now. May throw if a node does not respond. */
type FaultFactory = (
  context: FaultContext,
  planned: PlannedFault,
) => Promise<AppliedFault | null> | AppliedFault | null

/** Begins a planned fault and records it. Resolves when it has been undone. `report` tells whether it began. */
export async function applyFault(
  context: FaultContext,
  planned: PlannedFault,
  report: (fault: Fault | null, reason: string) => void,
): Promise<void> {
  const { clock, history } = context
  const from = clock()
  let applied: AppliedFault | null = null
  let reason = 'not possible now'
  try {
    applied = await FACTORIES[planned.kind](context, planned)
  } catch (error) {
    reason = error instanceof Error ? error.message : String(error)
  }
  if (applied === null) return report(null, reason)
  const { kind } = planned
  const { area, replica = null, node = null, detail = '' } = applied
  const fault: Fault = { kind, area, replica, node, detail, from, until: null }
  history.faults.push(fault)
  report(fault, '')
  if (applied.heal === undefined) {
    fault.until = clock()
    return
  }
  await elapsed(planned.lastsMs)
  for (let attempt = 0; ; attempt += 1) {
    try {
      await applied.heal()
      break
    } catch (error) {
      // A node that is being restarted may need a moment.
      if (attempt === 40) {
        const text = `${planned.kind}: ${error instanceof Error ? error.message : String(error)}`
        history.findings.push({ at: clock(), what: 'a fault that could not be undone', detail: text })
        break
      }
      await elapsed(250)
    }
  }
  fault.until = clock()
}

const FACTORIES: Record<FaultKind, FaultFactory> = {
  async 'kill a replica'({ fleet }, { replica }) {
    const target = fleet.replicas[replica]!
    if (!target.isUp()) return null
    target.resume()
    await target.kill()
    return { area: 'process', replica, heal: () => target.start() }
  },

  'freeze a replica'({ fleet }, { replica, lastsMs }) {
    const target = fleet.replicas[replica]!
    if (!target.isUp()) return null
    target.freeze()
    return { area: 'process', replica, detail: seconds(lastsMs), heal: () => target.resume() }
  },

  'stop a replica'({ fleet }, { replica }) {
    const target = fleet.replicas[replica]!
    if (!target.isUp()) return null
    const stopped = target.stop()
    return {
      ...{ area: 'process', replica, detail: 'SIGTERM' },
      async heal() {
        await stopped
        await target.start()
      },
    }
  },

  'change the secrets'({ fleet }) {
    if (!fleet.replicas.every((replica) => replica.isUp())) return null
    const added = randomBytes(36).toString('base64')
    const before = fleet.secrets()
    const roll = async (): Promise<void> => {
      for (const secrets of [
        [...before, added],
        [added, ...before],
      ]) {
        fleet.setSecrets(secrets)
        for (const replica of fleet.replicas) {
          await replica.stop()
          await replica.start()
        }
      }
    }
    const rolling = roll()
    return {
      area: 'process',
      detail: `to ${before.length + 1} secrets, by rolling restarts`,
      heal: () => rolling,
    }
  },

  'cut a replica off from Redis': ({ redis }, { replica }) => {
    const links = redis.linksOf(replica)
    for (const link of links) link.set('cut')
    return { area: 'redis', replica, heal: () => openAll(links) }
  },

  'freeze the network to Redis': ({ redis }, { replica }) => {
    const links = redis.linksOf(replica)
    for (const link of links) link.set('frozen')
    return { area: 'redis', replica, heal: () => openAll(links) }
  },

  'slow the network to Redis': ({ redis }, { replica, draws }) => {
    const links = redis.linksOf(replica)
    const ms = Math.round(20 + draws[0] * 400)
    for (const link of links) link.set('slow', ms)
    return { area: 'redis', replica, detail: `${ms} ms each way`, heal: () => openAll(links) }
  },

  'hold the replies of Redis': ({ redis }, { replica }) => {
    const links = redis.linksOf(replica)
    for (const link of links) link.set('replies-held')
    return { area: 'redis', replica, heal: () => openAll(links) }
  },

  'reset the connections to Redis': ({ redis }, { replica }) => {
    for (const link of redis.linksOf(replica)) link.reset()
    return { area: 'redis', replica }
  },

  'cut a replica off from the token endpoint': gatewayFault('cut'),
  'refuse connections to the token endpoint': gatewayFault('refused'),
  'freeze the network to the token endpoint': gatewayFault('frozen'),
  'hold the responses of the token endpoint': gatewayFault('replies-held'),
  'delay requests to the token endpoint': gatewayFault('delayed'),

  'lose token requests': ({ gateways }, { replica, draws, kind }) => {
    const times = 1 + Math.floor(draws[0] * 4)
    gateways[replica]!.lose('before', times, kind)
    return {
      area: 'token',
      replica,
      detail: `at most ${times}`,
      heal: () => gateways[replica]!.lose('before', 0, ''),
    }
  },

  'lose token responses': ({ gateways }, { replica, draws, kind }) => {
    const times = 1 + Math.floor(draws[0] * 2)
    gateways[replica]!.lose('after', times, kind)
    return {
      area: 'token',
      replica,
      detail: `at most ${times}`,
      heal: () => gateways[replica]!.lose('after', 0, ''),
    }
  },

  'cut a replica off from the resource server': resourceLinkFault('cut'),
  'freeze the network to the resource server': resourceLinkFault('frozen'),
  'slow the network to the resource server': resourceLinkFault('slow'),

  'freeze the master for a moment': freezeMaster,
  'freeze the master': freezeMaster,

  async 'kill the master'({ redis }, { draws }) {
    const master = pickReplaceable(redis, draws[0])
    if (master === null) return null
    await master.server.kill()
    return { area: 'redis', node: master.name, detail: master.name, heal: () => master.server.restart() }
  },

  async 'kill the clients of Redis'({ redis }, { draws }) {
    const master = pickMaster(redis, draws[0])
    if (master === null) return null
    await master.admin.call('client', 'kill', 'type', 'normal', 'skipme', 'yes')
    return { area: 'redis', node: master.name, detail: master.name }
  },

  async 'pause the clients of Redis'({ redis }, { draws, lastsMs }) {
    const master = pickReplaceable(redis, draws[0])
    if (master === null) return null
    const what = draws[1] < 0.5 ? 'all' : 'write'
    await master.admin.call('client', 'pause', String(lastsMs), what)
    return {
      area: 'redis',
      node: master.name,
      detail: `${master.name}, ${what}, ${seconds(lastsMs)}`,
      heal: () => {},
    }
  },

  'Redis is out of memory': (context, planned) =>
    configFault(context, planned, { name: 'maxmemory', value: '1', usual: '0' }),
  'Redis wants replicas that are not there': (context, planned) =>
    configFault(context, planned, { name: 'min-replicas-to-write', value: '5', usual: '0' }),

  async 'Redis is read-only'({ redis }) {
    const node = redis.nodes[0]!
    // A replica of an unreachable master keeps its data and refuses writes.
    await node.admin.call('replicaof', '127.0.0.1', '9')
    return {
      ...{ area: 'redis', node: node.name },
      heal: async () => void (await node.admin.call('replicaof', 'no', 'one')),
    }
  },

  'Redis sleeps'({ redis }, { draws, lastsMs }) {
    const master = pickReplaceable(redis, draws[0])
    if (master === null) return null
    const sleeping = master.admin.call('debug', 'sleep', String(lastsMs / 1_000)).catch(() => {})
    return {
      ...{ area: 'redis', node: master.name, detail: `${master.name}, ${seconds(lastsMs)}` },
      heal: async () => void (await sleeping),
    }
  },

  async 'a failover by command'({ redis }, { draws }) {
    const master = pickReplaceable(redis, draws[0])
    if (master === null) return null
    if (redis.mode === 'sentinel') {
      await redis.sentinels[Math.floor(draws[1] * 3)]!.admin.call('sentinel', 'failover', 'chaos')
      return { area: 'redis', node: master.name, detail: 'by a Sentinel', heal: () => {} }
    }
    const replica = redis.redisReplicaOf(master)
    if (replica === null) return null
    const forced = draws[1] < 0.5 ? ['force'] : []
    await replica.admin.call('cluster', 'failover', ...forced)
    return { area: 'redis', node: master.name, detail: `${master.name} ${forced.join('')}`, heal: () => {} }
  },

  async 'a failover after the replication was cut'({ redis }, { draws, lastsMs }) {
    const master = pickReplaceable(redis, draws[0])
    if (master === null) return null
    await master.admin.call('acl', 'setuser', 'default', '-psync', '-sync')
    await master.admin.call('client', 'kill', 'type', 'replica')
    // Writes from now on exist only on the master and are lost with it.
    await elapsed(Math.min(1_500, lastsMs / 3))
    const kills = draws[1] < 0.5
    if (kills) await master.server.kill()
    else master.server.pause()
    return {
      ...{ area: 'redis', node: master.name, detail: `${master.name} ${kills ? 'killed' : 'frozen'}` },
      async heal() {
        // A restart begins with the access rules of the configuration.
        if (kills) return await master.server.restart()
        master.server.resume()
        await master.admin.call('acl', 'setuser', 'default', '+psync', '+sync')
      },
    }
  },

  async 'kill a Sentinel'({ redis }, { draws }) {
    const sentinel = redis.sentinels[Math.floor(draws[0] * redis.sentinels.length)]!
    if (!sentinel.isUp()) return null
    await sentinel.kill()
    return { area: 'redis', node: sentinel.name, detail: sentinel.name, heal: () => sentinel.start() }
  },

  'move a slot': moveSlot,

  'cut the bus of a node': busFault('cut'),
  'silence the bus of a node': busFault('frozen'),

  'the token endpoint is slow': ({ sandbox }, { draws }) => {
    const ms = Math.round(TOKEN_TIMEOUT_MS * (0.3 + draws[0] * 2.7))
    const point = draws[1] < 0.5 ? 'before' : 'after'
    return tokenEndpoint(sandbox, { mode: 'slow', ms, point }, `${seconds(ms)}, ${point} its work`)
  },

  'the token endpoint hangs': ({ sandbox }, { draws }) => {
    const times = 1 + Math.floor(draws[0] * 3)
    const point = draws[1] < 0.7 ? 'before' : 'after'
    const fault = { mode: 'hang', point, times, only: 'refresh_token' } as const
    return tokenEndpoint(sandbox, fault, `${point} its work, at most ${times} times`)
  },

  'the token endpoint responds with errors': ({ sandbox }, { draws }) => {
    const [status, headers] = [
      [503, { 'retry-after': '2' }],
      [503, {}],
      [500, {}],
      [429, { 'retry-after': '1' }],
      [502, {}],
    ][Math.floor(draws[0] * 5)] as [number, Record<string, string>]
    const retryAfter = headers['retry-after'] === undefined ? '' : ' with Retry-After'
    return tokenEndpoint(sandbox, { mode: 'status', status, headers }, `${status}${retryAfter}`)
  },

  'the token endpoint drops requests': ({ sandbox }, { draws }) => {
    const times = 1 + Math.floor(draws[0] * 6)
    const fault = { mode: 'drop', point: 'before', times, only: 'refresh_token' } as const
    return tokenEndpoint(sandbox, fault, `at most ${times}`)
  },

  'the token endpoint drops responses': ({ sandbox }, { draws }) => {
    const times = 1 + Math.floor(draws[0] * 2)
    const fault = { mode: 'drop', point: 'after', times, only: 'refresh_token' } as const
    return tokenEndpoint(sandbox, fault, `at most ${times}`)
  },

  async 'the token endpoint is away'({ gateways }, { draws }) {
    const state = draws[0] < 0.5 ? 'refused' : 'cut'
    await Promise.all(gateways.map((gateway) => gateway.set(state)))
    return {
      ...{ area: 'token', detail: state },
      heal: async () => void (await Promise.all(gateways.map((gateway) => gateway.set('open')))),
    }
  },

  'the resource server refuses every token': ({ sandbox }, { draws }) => {
    const shapes = ['standard', 'bare401', 'json400', 'challenge403', 'servicestack'] as const
    const shape = shapes[Math.floor(draws[0] * shapes.length)]!
    sandbox.faults.set({ invalidToken: shape })
    return resourceServer(sandbox, { mode: 'invalid-token' }, shape)
  },

  'the resource server is slow': ({ sandbox }, { draws }) => {
    const ms = Math.round(300 + draws[0] * 2_500)
    return resourceServer(sandbox, { mode: 'slow', ms }, seconds(ms))
  },

  'the resource server responds with errors': ({ sandbox }, { draws }) => {
    const status = draws[0] < 0.5 ? 500 : 503
    return resourceServer(sandbox, { mode: 'status', status }, String(status))
  },
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`
}

function openAll(links: readonly Link[]): void {
  for (const link of links) link.set('open')
}

function gatewayFault(state: Parameters<TokenGateway['set']>[0]): FaultFactory {
  return async ({ gateways }, { replica, draws }) => {
    const gateway = gateways[replica]!
    const ms = state === 'delayed' ? Math.round(300 + draws[0] * 2_700) : 0
    await gateway.set(state, ms)
    return { area: 'token', replica, detail: ms === 0 ? '' : seconds(ms), heal: () => gateway.set('open') }
  }
}

function resourceLinkFault(state: Parameters<Link['set']>[0]): FaultFactory {
  return ({ resourceLinks }, { replica, draws }) => {
    const link = resourceLinks[replica]!
    const ms = state === 'slow' ? Math.round(100 + draws[0] * 500) : 0
    link.set(state, ms)
    return { area: 'resource', replica, detail: ms === 0 ? '' : seconds(ms), heal: () => link.set('open') }
  }
}

/** Between the other nodes of a Cluster and this one. */
function busFault(state: Parameters<Link['set']>[0]): FaultFactory {
  return ({ redis }, { draws }) => {
    const at = Math.floor(draws[0] * redis.nodes.length)
    const link = redis.busLinks[at]!
    link.set(state)
    const { name } = redis.nodes[at]!
    return { area: 'redis', node: name, detail: name, heal: () => link.set('open') }
  }
}

function pickMaster(redis: RedisDeployment, draw: number): DataNode | null {
  const masters = redis.masters()
  return masters[Math.floor(draw * masters.length)] ?? null
}

/**
 * A master whose loss loses no more than its last moment: one with a replica in sync. Without one Redis itself would
 * lose data, or promote a node that has not the data.
 */
function pickReplaceable(redis: RedisDeployment, draw: number): DataNode | null {
  const master = pickMaster(redis, draw)
  if (redis.mode === 'single' || master === null) return master
  return redis.redisReplicaOf(master) === null ? null : master
}

function freezeMaster({ redis }: FaultContext, { draws, lastsMs }: PlannedFault): AppliedFault | null {
  const master = pickReplaceable(redis, draws[0])
  if (master === null) return null
  master.server.pause()
  const detail = `${master.name}, ${seconds(lastsMs)}`
  return { area: 'redis', node: master.name, detail, heal: () => master.server.resume() }
}

async function configFault(
  { redis }: FaultContext,
  { draws }: PlannedFault,
  { name, value, usual }: { name: string; value: string; usual: string },
): Promise<AppliedFault | null> {
  const master = pickMaster(redis, draws[0])
  if (master === null) return null
  await master.admin.config('SET', name, value)
  return {
    ...{ area: 'redis', node: master.name, detail: master.name },
    heal: async () => void (await master.admin.config('SET', name, usual)),
  }
}

/** A slot that holds a session goes to another master; in between the keys are there and the slot still here. */
async function moveSlot({ redis }: FaultContext, { draws }: PlannedFault): Promise<AppliedFault | null> {
  const masters = redis.masters()
  const from = pickMaster(redis, draws[0])
  const to = masters.find((master) => master !== from)
  if (from === null || to === undefined) return null
  const [, found] = (await from.admin.scan(0, 'MATCH', 'bff:s:*', 'COUNT', 500)) as [string, string[]]
  const name = found[Math.floor(draws[1] * found.length)]
  if (name === undefined) return null
  const slot = String(await from.admin.call('cluster', 'keyslot', name))
  const idOf = async ({ admin }: DataNode): Promise<string> => String(await admin.call('cluster', 'myid'))
  await to.admin.call('cluster', 'setslot', slot, 'importing', await idOf(from))
  await from.admin.call('cluster', 'setslot', slot, 'migrating', await idOf(to))
  const moveKeys = async (source: DataNode, target: DataNode): Promise<void> => {
    const keys = (await source.admin.call('cluster', 'getkeysinslot', slot, '1000')) as string[]
    if (keys.length === 0) return
    const { port } = target.server
    await source.admin.call('migrate', '127.0.0.1', String(port), '', '0', '2000', 'replace', 'keys', ...keys)
  }
  await moveKeys(from, to)
  return {
    ...{ area: 'redis', node: from.name, detail: `slot ${slot} from ${from.name} to ${to.name}` },
    async heal() {
      // A failover in between leaves the move to the new masters, which know nothing of it.
      const [source, target] = [from, to].map((node) =>
        node.role === 'master' ? node : redis.nodes.find(({ server }) => server.port === node.masterPort),
      )
      if (source === undefined || target === undefined) throw new Error('a master is missing')
      const id = await idOf(target)
      await moveKeys(source, target)
      for (const { admin } of [target, ...redis.masters().filter((master) => master !== target)]) {
        await admin.call('cluster', 'setslot', slot, 'node', id)
      }
    },
  }
}

function tokenEndpoint(sandbox: Sandbox, fault: Faults['tokenEndpoint'], detail: string): AppliedFault {
  sandbox.faults.set({ tokenEndpoint: fault })
  return { area: 'token', detail, heal: () => sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } }) }
}

function resourceServer(
  sandbox: Sandbox,
  fault: Misbehaviour | ResourceMisbehaviour,
  detail: string,
): AppliedFault {
  sandbox.faults.set({ resource: fault })
  return { area: 'resource', detail, heal: () => sandbox.faults.set({ resource: { mode: 'ok' } }) }
}
