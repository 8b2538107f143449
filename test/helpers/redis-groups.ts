// Redis with Sentinels, and Redis Cluster: start, failover, slot migration and faults between nodes.

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Certificate, createCertificate } from './certificate.ts'
import { type Child, startChild, type Teardown, toolPath } from './child.ts'
import { type RedisOptions, type RedisServer, startOnFreePort, startRedis } from './redis.ts'
import { redisCommand } from './redis-command.ts'
import { until } from './wait.ts'
import { makeFolder } from './watchdog.ts'

const MASTER_NAME = 'mymaster'
/** Of a Cluster. */
const MASTERS = 3
/** How often Sentinels announce themselves and read the roles of all nodes, in milliseconds: by default, and in a hurry. */
const USUAL_PERIODS = ['publish-period', '2000', 'info-period', '10000']
const SHORT_PERIODS = ['publish-period', '100', 'info-period', '100']

export type SentinelGroup = Awaited<ReturnType<typeof startSentinelGroup>>

/**
 * A master, a replica in sync and three Sentinels that know each other. A failover
 * begins one second after the death of the master and takes some seconds.
 */
export async function startSentinelGroup(
  t: Teardown,
  options: { tls?: boolean; passwords?: { data: string; sentinels: string }; args?: readonly string[] } = {},
) {
  const tls = options.tls === true ? await createCertificate(makeFolder('certificate')) : false
  const { data: password, sentinels: sentinelPassword } = options.passwords ?? {}
  const node = { tls, ...(password === undefined ? {} : { password }) }
  const args = [
    // By default a replica waits five seconds for others to copy the data together with it.
    ...['--repl-diskless-sync-delay', '0'],
    ...(password === undefined ? [] : ['--masterauth', password]),
    ...(options.args ?? []),
  ]
  const master = await startRedis(t, { ...node, args })
  const replica = await startRedis(t, { ...node, args })
  // As an argument it would bring the replica back as one, also if it is restarted as the master.
  await replica.cli('replicaof', '127.0.0.1', String(master.port))
  // A replica that counts as online may have no writes yet: they begin with its first acknowledgement.
  await master.cli('set', 'first-write', '1')
  await until(
    'the replica has a write',
    async () => (await replica.cli('get', 'first-write').catch(() => '')).trim() === '1',
  )
  await master.cli('del', 'first-write')

  const sentinels: { child: Child; port: number }[] = []
  const configuration = [
    `sentinel monitor ${MASTER_NAME} 127.0.0.1 ${master.port} 2`,
    // A master that a busy machine holds up for a moment stays the master.
    `sentinel down-after-milliseconds ${MASTER_NAME} 3000`,
    `sentinel failover-timeout ${MASTER_NAME} 3000`,
    ...(password === undefined ? [] : [`sentinel auth-pass ${MASTER_NAME} ${password}`]),
    ...(sentinelPassword === undefined ? [] : [`requirepass ${sentinelPassword}`]),
  ]
  for (let i = 0; i < 3; i++) sentinels.push(await startSentinel(t, configuration, tls))
  const sentinelPorts = sentinels.map(({ port }) => port)
  const ca = tls === false ? undefined : readFileSync(tls.caFile)
  const ask = (port: number, ...args: string[]) =>
    redisCommand(port, ['sentinel', ...args], { ca, password: sentinelPassword })
  const setPeriods = async (periods: string[]): Promise<void> => {
    for (const port of sentinelPorts) await ask(port, 'debug', ...periods)
  }
  await setPeriods(SHORT_PERIODS)
  for (const port of sentinelPorts) {
    await until('each sentinel knows the two others and the replica', async () => {
      const state = await ask(port, 'master', MASTER_NAME)
      return /num-other-sentinels\n2\n/.test(state) && /num-slaves\n1\n/.test(state)
    })
  }
  await setPeriods(USUAL_PERIODS)

  return {
    master,
    replica,
    sentinelPorts,
    /** Lets the Sentinels make a superseded master a replica soon. Resolves when it is in sync. */
    async demote(old: RedisServer): Promise<void> {
      await setPeriods(SHORT_PERIODS)
      await until('the old master replicates', async () =>
        // A node that becomes a replica closes its connections.
        (await old.cli('info', 'replication').catch(() => '')).includes('master_link_status:up'),
      )
      await setPeriods(USUAL_PERIODS)
    },
    /** Stops the Sentinels at these indexes: their connections stay open without replies. */
    pauseSentinels(...at: number[]): void {
      for (const each of at) sentinels[each]!.child.send('SIGSTOP')
    },
    resumeSentinels(...at: number[]): void {
      for (const each of at) sentinels[each]!.child.send('SIGCONT')
    },
    /** Path of the shared CA certificate; null without TLS. */
    caFile: tls === false ? null : tls.caFile,
    url: `redis${tls === false ? '' : 's'}-sentinel://${password === undefined ? '' : `:${password}@`}${sentinelPorts.map((port) => `127.0.0.1:${port}`).join(',')}/${MASTER_NAME}`,
    /** Port of the current master according to one Sentinel. */
    async masterPort(sentinel = 0): Promise<number> {
      const answer = await ask(sentinelPorts[sentinel]!, 'get-master-addr-by-name', MASTER_NAME)
      return Number(answer.split('\n')[1])
    },
    /** Stops replication. The replica can still be promoted. */
    cutReplication: () => stopReplication(master, [replica]),
  }
}

export type RedisCluster = Awaited<ReturnType<typeof startCluster>>

/** A Redis Cluster with three masters, ready when every node reports the state ok. */
export async function startCluster(
  t: Teardown,
  options: { replicas?: number; tls?: boolean; args?: readonly string[] } = {},
) {
  const replicas = options.replicas ?? 0
  const tls = options.tls === true ? await createCertificate(makeFolder('certificate')) : false
  const tlsArgs = tls === false ? [] : ['--tls', '--cacert', tls.caFile]
  const nodes: RedisServer[] = []
  const args = [
    ...(tls === false ? [] : ['--tls-cluster', 'yes']),
    // A master that gave away its last slot stays a master.
    ...['--cluster-allow-replica-migration', 'no'],
    // Without replicas nobody takes over: a node that a busy machine holds up must not count as dead.
    ...['--cluster-node-timeout', replicas === 0 ? '15000' : '2000', '--repl-diskless-sync-delay', '0'],
    ...(options.args ?? []),
  ]
  for (let i = 0; i < MASTERS * (1 + replicas); i++)
    nodes.push(await startRedis(t, { tls, cluster: true, args }))
  const addresses = nodes.map((node) => `127.0.0.1:${node.port}`)

  const creation = startChild(t, toolPath('redis-cli'), [
    ...['--cluster', 'create', ...addresses],
    ...['--cluster-replicas', String(replicas), '--cluster-yes', ...tlsArgs],
  ])
  const { code } = await creation.ended
  if (code !== 0) throw new Error(`the cluster was not created:\n${creation.output()}`)
  for (const node of nodes) {
    await until('each node sees the whole cluster', async () => {
      const info = await node.cli('cluster', 'info')
      const known = info.includes(`cluster_known_nodes:${nodes.length}`)
      if (!info.includes('cluster_state:ok') || !known) return false
      const view = (await node.cli('cluster', 'nodes')).split('\n')
      // A master votes for the promotion of a replica only once it knows whose replica that is.
      return view.filter((line) => /[ ,]slave /.test(line)).length === MASTERS * replicas
    })
  }

  return {
    nodes,
    /** Path of the shared CA certificate; null without TLS. */
    caFile: tls === false ? null : tls.caFile,
    /** With every node. */
    url: `redis${tls === false ? '' : 's'}-cluster://${addresses.join(',')}`,
    slotOf: async (redisKey: string) => Number(await nodes[0]!.cli('cluster', 'keyslot', redisKey)),
    /** Whether every other node knows that this master is dead and which node serves its slots. */
    async hasReplaced(master: RedisServer): Promise<boolean> {
      const living = nodes.filter((node) => node !== master)
      const views = await Promise.all(living.map(async (node) => await node.cli('cluster', 'nodes')))
      return views.every((view) => {
        const line = view.split('\n').find((each) => each.includes(`:${master.port}@`)) ?? ''
        return line.includes('fail') && line.split(' ').length === 8
      })
    },
    /** Stops replication from this master. Its replica can still be promoted. */
    async cutReplication(master: RedisServer): Promise<void> {
      const id = await master.cli('cluster', 'myid')
      const own = await master.cli('cluster', 'replicas', id)
      const replicas = nodes.filter(({ port }) => own.includes(`127.0.0.1:${port}@`))
      await stopReplication(master, replicas)
    },
    /**
     * Starts to move a slot to another master (by default the next one) and moves its keys. Until `end` the
     * source still owns the slot and redirects its commands.
     */
    async beginMove(slot: number, target?: RedisServer) {
      const owners = await Promise.all(
        nodes.map(async (node) => ownsSlot(await node.cli('cluster', 'nodes'), slot)),
      )
      const from = nodes[owners.indexOf(true)]!
      const to = target ?? nodes[(owners.indexOf(true) + 1) % MASTERS]!
      const ids = { from: await from.cli('cluster', 'myid'), to: await to.cli('cluster', 'myid') }
      await to.cli('cluster', 'setslot', String(slot), 'importing', ids.from)
      await from.cli('cluster', 'setslot', String(slot), 'migrating', ids.to)
      const moveKeys = async (): Promise<void> => {
        const names = (await from.cli('cluster', 'getkeysinslot', String(slot), '1000')).split('\n')
        const keys = names.filter((name) => name !== '')
        if (keys.length > 0)
          await from.cli('migrate', '127.0.0.1', String(to.port), '', '0', '5000', 'keys', ...keys)
      }
      await moveKeys()
      return {
        /** The node that gets the slot. */
        to,
        async end(): Promise<void> {
          await moveKeys()
          for (const node of [to, from]) await node.cli('cluster', 'setslot', String(slot), 'node', ids.to)
        },
      }
    },
  }
}

/** Options of a node of a Cluster that is known as `localhost`; with TLS also by this port in place of its own. */
export function announcedByName({
  tls,
  tlsPort,
}: {
  tls?: Certificate
  tlsPort?: number
} = {}): RedisOptions {
  return {
    ...(tls === undefined ? {} : { tls }),
    args: [
      ...['--cluster-announce-hostname', 'localhost', '--cluster-preferred-endpoint-type', 'hostname'],
      ...(tls === undefined ? [] : ['--tls-cluster', 'yes']),
      ...(tlsPort === undefined ? [] : ['--cluster-announce-tls-port', String(tlsPort)]),
    ],
  }
}

/** A Cluster of one master, ready for writes: Redis refuses them for two seconds after its start. */
export async function startClusterOfOne(t: Teardown, options: RedisOptions = {}): Promise<RedisServer> {
  const redis = await startRedis(t, {
    ...options,
    cluster: true,
    // A single node cannot learn its address from others.
    args: ['--cluster-announce-ip', '127.0.0.1', ...(options.args ?? [])],
  })
  await redis.cli('cluster', 'addslotsrange', '0', '16383')
  await until('the node serves its slots', async () =>
    (await redis.cli('cluster', 'info')).includes('cluster_state:ok'),
  )
  return redis
}

async function stopReplication(master: RedisServer, replicas: readonly RedisServer[]): Promise<void> {
  await master.cli('acl', 'setuser', 'default', '-psync', '-sync')
  await master.cli('client', 'kill', 'type', 'replica')
  for (const replica of replicas)
    await until('the replica has no master', async () =>
      (await replica.cli('info', 'replication')).includes('master_link_status:down'),
    )
}

/** Whether the node with this CLUSTER NODES output serves the slot. */
function ownsSlot(clusterNodes: string, slot: number): boolean {
  const own = clusterNodes.split('\n').find((line) => line.includes('myself')) ?? ''
  return own
    .split(' ')
    .slice(8)
    .some((range) => {
      const [first, last = first] = range.split('-').map(Number)
      return first! <= slot && slot <= last!
    })
}

/** A Sentinel that names its master, at this port, as `localhost`. */
export async function startNamingSentinel(
  t: Teardown,
  { masterPort, tls = false }: { masterPort: number; tls?: Certificate | false },
): Promise<{ port: number }> {
  const names = ['sentinel resolve-hostnames yes', 'sentinel announce-hostnames yes']
  return await startSentinel(t, [...names, `sentinel monitor ${MASTER_NAME} localhost ${masterPort} 1`], tls)
}

async function startSentinel(t: Teardown, configuration: readonly string[], tls: Certificate | false) {
  const folder = makeFolder('sentinel')
  return await startOnFreePort(t, (port) => {
    const file = join(folder, `${port}.conf`)
    const lines = ['bind 127.0.0.1', `dir ${folder}`, ...portLines(port, tls), ...configuration]
    writeFileSync(file, `${lines.join('\n')}\n`)
    return [file, '--sentinel']
  })
}

function portLines(port: number, tls: Certificate | false): string[] {
  if (tls === false) return [`port ${port}`]
  const { certFile, keyFile, caFile } = tls
  return [
    ...['port 0', `tls-port ${port}`],
    ...[`tls-cert-file ${certFile}`, `tls-key-file ${keyFile}`, `tls-ca-cert-file ${caFile}`],
    ...['tls-auth-clients no', 'tls-replication yes'],
  ]
}
