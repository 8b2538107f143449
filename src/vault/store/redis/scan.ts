import { StoreUnavailable } from '../store.ts'
import type { Commands } from './commands.ts'
import { allMastersOf, isCluster, type RedisServer } from './connection.ts'

/** Takes about a millisecond, during which the server runs no other command. */
const SCANNED_AT_ONCE = 1_000

/**
 * The rest of each Redis key that begins with `prefix`, on every master of a Cluster one after another, in batches of
 * about a thousand. By SCAN, so that the servers also run other commands meanwhile. Throws `StoreUnavailable` if a
 * server cannot be reached or a connection breaks, and at its end if slots have moved: keys may be missing then.
 */
export async function* scanKeys({ client, send }: Commands, prefix: string): AsyncGenerator<string[], void> {
  const pattern = `${prefix.replace(/[\\*?[\]^-]/g, '\\$&')}*`
  const servers = allMastersOf(client)
  if (servers === null) throw new StoreUnavailable(new Error('a master of the Cluster is not known'))
  const slotsOf = (server: RedisServer): Promise<string> => send('cluster', null, () => readSlots(server))
  const before = isCluster(client) ? await Promise.all(servers.map(slotsOf)) : []
  for (const server of servers) {
    // A cursor is worthless on another connection, which may lead to another server.
    let broken = false
    const onClose = (): void => {
      broken = true
    }
    server.on('close', onClose)
    try {
      let cursor = '0'
      do {
        if (broken) throw new StoreUnavailable(new Error('the connection broke during the scan'))
        const step = (): Promise<[string, string[]]> =>
          server.scan(cursor, 'MATCH', pattern, 'COUNT', SCANNED_AT_ONCE)
        const [next, redisKeys] = await send('scan', null, step)
        cursor = next
        yield redisKeys.map((redisKey) => redisKey.slice(prefix.length))
      } while (cursor !== '0')
    } finally {
      server.off('close', onClose)
    }
  }
  const after = isCluster(client) ? await Promise.all(servers.map(slotsOf)) : []
  if (before.some((slots, at) => slots !== after[at] || slots.includes('[')))
    throw new StoreUnavailable(new Error('slots of the Cluster moved during the scan'))
}

/** The slots of this master; those that are migrating are in brackets. */
async function readSlots(server: RedisServer): Promise<string> {
  const nodes = (await server.call('CLUSTER', 'NODES')) as string
  const own = nodes.split('\n').find((line) => line.includes('myself')) ?? ''
  return own.split(' ').slice(8).join(' ')
}
