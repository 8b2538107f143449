import cluster from 'node:cluster'
import { buildApp } from '../app.ts'
import type { Config } from '../config/config.ts'
import type { Logger } from '../log.ts'
import { answerPrimary, WORKER_FAULT } from './ipc.ts'
import { listenAddress, listenFault } from './listen.ts'

/**
 * One replica in this process: alone with its own ops port, or one of several workers, whose primary
 * has that. Ends the process: with 0 after a stop that was asked for, else with 1.
 */
export async function runReplica(config: Config, log: Logger): Promise<void> {
  const { port, opsPort } = config.listen
  const app = await buildApp({
    config,
    log,
    onStoreRefused: (message) => fail(`REDIS_URL: the server refuses our credentials (${message})`),
  })
  let stopping = false

  async function stop(reason: string): Promise<void> {
    if (stopping) return
    stopping = true
    log.info({ event: 'stopping', reason }, 'stopping')
    app.announceStop()
    setTimeout(() => {
      log.error({ event: 'stop.incomplete' }, 'not everything could be finished in time')
      process.exit(1)
    }, config.shutdownSeconds * 1_000).unref()
    await app.stop()
    process.exit(0)
  }

  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal))
  // Started by another process (the demo, a primary): not to be left behind when that is killed.
  if (process.connected) process.once('disconnect', () => void stop('disconnect'))
  if (cluster.isWorker) {
    // Else Node ends a worker at once when its primary is killed, with refreshes under way.
    cluster.worker!.exitedAfterDisconnect = true
    app.shareMetricsWithPrimary()
    answerPrimary(app.objections)
  }

  try {
    const host = await listenAddress(config.listen.host)
    const opsUrl = opsPort === 0 || cluster.isWorker ? null : await app.ops.listen({ host, port: opsPort })
    const url = await app.server.listen({ host, port })
    app.start()
    if (cluster.isWorker) {
      log.info({ event: 'worker.listening' }, 'worker listening')
      process.send?.({ listening: url })
    } else {
      log.info({ event: 'listening', url, opsUrl, publicUrl: config.publicUrl }, 'listening')
      // A port that was picked has to be told, whatever the level of the log.
      if (port === 0 && !log.isLevelEnabled('info')) process.stdout.write(`listening on ${url}\n`)
    }
  } catch (error) {
    fail(`The server could not start. ${listenFault(error, config.listen)}`)
  }
}

function fail(message: string): never {
  process.stderr.write(`${message}\n`)
  process.exit(cluster.isWorker ? WORKER_FAULT : 1)
}
