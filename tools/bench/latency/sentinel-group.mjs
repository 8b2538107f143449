// A Redis with a replica and three Sentinels, whose master can be killed.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { findProgram } from '../places.mjs'
import { freePort } from '../processes.mjs'

const NAME = 'bench'
const DOWN_AFTER_MS = 1_000

/** Starts the group. `killMaster` resolves when the Sentinels have promoted the replica. */
export async function startSentinelGroup({ processes, folder, connect }) {
  const master = await startRedis({ processes, folder })
  const replica = await startRedis({ processes, folder }, ['--replicaof', '127.0.0.1', String(master.port)])
  const sentinels = []
  for (let each = 0; each < 3; each += 1) {
    const port = await freePort()
    const file = join(folder, `sentinel-${port}.conf`)
    const lines = [
      `port ${port}`,
      'bind 127.0.0.1',
      `sentinel monitor ${NAME} 127.0.0.1 ${master.port} 2`,
      `sentinel down-after-milliseconds ${NAME} ${DOWN_AFTER_MS}`,
      `sentinel failover-timeout ${NAME} 5000`,
    ]
    writeFileSync(file, `${lines.join('\n')}\n`)
    const ready = /Sentinel ID is/
    await processes.start(findProgram('redis-server'), [file, '--sentinel'], { core: 'load', ready })
    sentinels.push(connect(port, { enableReadyCheck: false }))
  }
  const data = connect(replica.port)
  const saysReplica = async (text) => (await data.info('replication')).includes(text)
  await until('the replica is in sync', () => saysReplica('master_link_status:up'))
  const source = connect(master.port)
  // Before, the master sends the replica no writes, which would be missing after the failover.
  await until('the replica is online at its master', async () =>
    (await source.info('replication')).includes('state=online'),
  )
  source.disconnect()
  for (const sentinel of sentinels) {
    await until('the Sentinels know each other and the replica', async () => {
      const state = (await sentinel.call('sentinel', 'master', NAME)).join(' ')
      return state.includes('num-other-sentinels 2') && state.includes('num-slaves 1')
    })
  }

  return {
    url: `redis-sentinel://${sentinels.map(({ options }) => `127.0.0.1:${options.port}`).join(',')}/${NAME}`,
    async killMaster() {
      master.child.kill('SIGKILL')
      await until('the replica is promoted', () => saysReplica('role:master'))
    },
  }
}

async function startRedis({ processes, folder }, args = []) {
  const port = await freePort()
  const own = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', folder]
  const { child } = await processes.start(
    findProgram('redis-server'),
    [...own, '--repl-diskless-sync-delay', '0', ...args],
    { core: 'load', ready: /Ready to accept connections/ },
  )
  return { port, child }
}

async function until(what, holds) {
  const deadline = performance.now() + 30_000
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`not within 30 s: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}
