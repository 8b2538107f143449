import { constants } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { buildApp } from '../app.ts'
import { SYSTEM_CLOCK } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { Logger } from '../log.ts'
import { listenAddress, listenFailure, logListening } from './listen.ts'
import { createStopSignals } from './stop-signals.ts'

/**
 * Runs the server with its ops port. Ends the process, with 0 after a stop signal, with 128 + its number at a second
 * one, else with 1.
 */
export async function runReplica(config: Config, log: Logger): Promise<void> {
  const { port, opsPort } = config.listen
  const app = await buildApp(config, log, (message) =>
    fail(`Redis refused the credentials (${message}): check REDIS_URL`),
  )
  let stopping = false

  async function stop(reason: string): Promise<void> {
    if (stopping) return
    stopping = true
    const delaySeconds = config.shutdownDelaySeconds
    log.info({ event: 'stopping', reason, delaySeconds }, 'stopping')
    app.announceStop()
    if (delaySeconds > 0) await pause(delaySeconds * 1_000)
    setTimeout(() => {
      log.error({ event: 'stop.incomplete' }, 'not everything was finished in time: raise SHUTDOWN_SECONDS')
      process.exit(1)
    }, config.shutdownSeconds * 1_000).unref()
    await app.server.close()
    process.exit(0)
  }

  const meaningOf = createStopSignals({
    isUnderNpm: process.env.npm_lifecycle_event !== undefined,
    monotonic: SYSTEM_CLOCK.monotonic,
  })
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      const meaning = meaningOf(signal)
      if (meaning === 'stop') void stop(signal)
      if (meaning === 'end') endAtOnce(signal, log)
    })
  }
  // A parent process (the demo) that is killed must not leave this one behind.
  if (process.connected) process.once('disconnect', () => void stop('disconnect'))

  try {
    const host = await listenAddress(config.listen.host)
    const opsUrl = opsPort === 0 ? null : await app.ops.listen({ host, port: opsPort })
    await app.storeTried()
    if (stopping) return
    const url = await app.server.listen({ host, port })
    app.start()
    logListening(log, config, { url, opsUrl })
  } catch (error) {
    fail(`The server could not start. ${listenFailure(error, config.listen)}`)
  }
}

function endAtOnce(signal: 'SIGTERM' | 'SIGINT', log: Logger): never {
  log.error({ event: 'stop.incomplete' }, `a second stop signal, ${signal}, ended the process: send only one`)
  process.exit(128 + constants.signals[signal])
}

function fail(message: string): never {
  process.stderr.write(`${message}\n`)
  process.exit(1)
}
