import cluster from 'node:cluster'
import { buildApp } from '../app.ts'
import type { Config } from '../config/config.ts'
import type { Logger } from '../log.ts'
import { PERMANENT_FAILURE, replyToPrimary } from './ipc.ts'
import { listenAddress, listenFailure, logListening } from './listen.ts'

/**
 * Runs the server in this process: alone, with its own ops port, or as one of several workers, whose primary has
 * that port. Ends the process, with 0 after a stop signal, else with 1.
 */
export async function runServerProcess(config: Config, log: Logger): Promise<void> {
  const { port, opsPort } = config.listen
  const app = await buildApp(config, log, (message) =>
    fail(`Redis refused the credentials (${message}): check REDIS_URL`),
  )
  let stopping = false
  let endDelay = (): void => {}

  async function stop(reason: string): Promise<void> {
    // Without its primary a worker gets no new connections, so there is nothing to wait for.
    if (reason === 'disconnect') endDelay()
    if (stopping) return
    stopping = true
    const delaySeconds = reason === 'disconnect' ? 0 : config.shutdownDelaySeconds
    log.info({ event: 'stopping', reason, delaySeconds }, 'stopping')
    app.announceStop()
    if (delaySeconds > 0) {
      await new Promise<void>((resolve) => {
        endDelay = resolve
        setTimeout(resolve, delaySeconds * 1_000)
      })
    }
    setTimeout(() => {
      log.error({ event: 'stop.incomplete' }, 'not everything was finished in time: raise SHUTDOWN_SECONDS')
      process.exit(1)
    }, config.shutdownSeconds * 1_000).unref()
    await app.stop()
    process.exit(0)
  }

  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal))
  // A parent process (the demo, a primary) that is killed must not leave this one behind.
  if (process.connected) process.once('disconnect', () => void stop('disconnect'))
  if (cluster.isWorker) {
    // Otherwise Node ends a worker at once when its primary is killed, with refreshes in flight.
    cluster.worker!.exitedAfterDisconnect = true
    app.shareMetricsWithPrimary()
    replyToPrimary(app.readiness)
  }

  try {
    const host = await listenAddress(config.listen.host)
    const opsUrl = opsPort === 0 || cluster.isWorker ? null : await app.ops.listen({ host, port: opsPort })
    await app.storeTried()
    if (stopping) return
    const url = await app.server.listen({ host, port })
    app.start()
    if (cluster.isWorker) {
      log.info({ event: 'worker.listening' }, 'worker listening')
      process.send?.({ listening: url })
    } else {
      logListening(log, config, { url, opsUrl })
    }
  } catch (error) {
    fail(`The server could not start. ${listenFailure(error, config.listen)}`)
  }
}

function fail(message: string): never {
  process.stderr.write(`${message}\n`)
  process.exit(cluster.isWorker ? PERMANENT_FAILURE : 1)
}
