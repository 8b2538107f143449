import type { Cluster, Redis } from 'ioredis'
import type { RedisAddress } from '../../config/redis-url.ts'
import { inTime } from './commands.ts'

/** The shortest time between two refreshes of the client's slot map. */
const REFRESH_EVERY_MS = 1_000

/** The masters of a Cluster, as each of them names them. An address is `host:port`. */
interface ClusterMasters {
  /** Asks this master which masters it knows. Rejects when it does not reply in time. */
  ask(address: string): Promise<void>
  /** All masters with slots, as named by the masters that replied in the last `maxAgeMs`; before any reply, the seeds. */
  known(maxAgeMs: number): Set<string>
  forget(address: string): void
}

/** An election changes the state a moment before the slots move, so the slots are read again after this. */
const SLOTS_EVERY_MS = 2_000

interface View {
  /** Changes shortly before a slot may move to a node that had none. */
  state: string
  masters: Set<string>
  /** Monotonic time at which the slots were asked for. */
  readAt: number
  /** Monotonic time at which the last question was sent. */
  askedAt: number
}

/**
 * A master that gives a slot away knows the new owner at once, without the cluster bus. So as long as each known
 * master names known ones only, no slot is anywhere else. The client's own map is older: it learns of a move by
 * a command that went to the wrong node.
 */
export function createClusterMasters(cluster: Cluster, seeds: readonly RedisAddress[]): ClusterMasters {
  const views = new Map<string, View>()
  let refreshedAt = Number.NEGATIVE_INFINITY

  return {
    async ask(address) {
      const node = cluster.nodes().find((one) => addressOf(one) === address)
      if (node === undefined) {
        refresh()
        throw new Error('not connected to that master')
      }
      const askedAt = performance.now()
      const state = stateOf((await inTime(node.cluster('INFO'))) as string)
      const view = views.get(address)
      const isRecent = view !== undefined && askedAt - view.readAt < SLOTS_EVERY_MS
      if (isRecent && state !== '' && view.state === state) {
        view.askedAt = askedAt
        return
      }
      const slots = (await inTime(node.call('CLUSTER', 'SLOTS'))) as [
        number,
        number,
        [string | null, number],
      ][]
      const host = address.slice(0, address.lastIndexOf(':'))
      // A node that does not know its own host names none.
      const masters = new Set(slots.map(([, , [name, port]]) => `${name || host}:${port}`))
      views.set(address, { state, masters, readAt: askedAt, askedAt })
    },
    known(maxAgeMs) {
      const since = performance.now() - maxAgeMs
      const recent = [...views.values()].filter(({ askedAt }) => askedAt > since)
      if (recent.length > 0) return new Set(recent.flatMap(({ masters }) => [...masters]))
      const mapped = new Set(cluster.slots.flatMap((nodes) => nodes?.[0] ?? []))
      return mapped.size > 0 ? mapped : new Set(seeds.map(({ host, port }) => `${host}:${port}`))
    },
    forget: (address) => void views.delete(address),
  }

  function refresh(): void {
    if (performance.now() - refreshedAt < REFRESH_EVERY_MS || cluster.status !== 'ready') return
    refreshedAt = performance.now()
    cluster.refreshSlotsCache()
  }
}

/** The address of a node's connection, as the client and `CLUSTER SLOTS` write it. */
export function addressOf({ options }: Redis): string {
  return `${options.host}:${options.port}`
}

/** '' where the server does not report it: the slots are then read each time. */
function stateOf(info: string): string {
  const names = ['size', 'known_nodes', 'current_epoch', 'my_epoch', 'slots_pfail', 'slots_fail']
  const values = names.map((name) => new RegExp(`^cluster_${name}:(.*?)\\r?$`, 'm').exec(info)?.[1])
  return values.includes(undefined) ? '' : values.join(' ')
}
