import { constants } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { buildApp } from '../app.ts'
import { SYSTEM_CLOCK } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { Logger } from '../log.ts'
import { listenAddress, listenFailure, logListening } from './listen.ts'
import { createStopSignals } from './stop-signals.ts'

/** How long a late stop waits until its last responses are written. */
const REFUSE_MS = 1_500

/**
 * Runs the server with its ops port. Ends the process: with 0 after a stop signal, with 1 if tokens could not be stored
 * until then, with 128 + its number at a second signal; with 1 where it cannot start.
 */
export async function runReplica(config: Config, log: Logger): Promise<void> {
  const { port, opsPort } = config.listen
  const app = await buildApp(config, log, (message) =>
    fail(`Redis refused the credentials or the database (${message}): check REDIS_URL`),
  )
  let stopping = false
  let isLate = false

  async function stop(reason: string): Promise<void> {
    if (stopping) return
    stopping = true
    const delaySeconds = config.shutdownDelaySeconds
    log.info({ event: 'stopping', reason, delaySeconds }, 'stopping')
    app.announceStop()
    if (delaySeconds > 0) await pause(delaySeconds * 1_000)
    setTimeout(() => void endUnfinished(), config.shutdownSeconds * 1_000).unref()
    await app.server.close()
    if (isLate) return
    log.info({ event: 'stopped' }, 'stopped')
    process.exit(0)
  }

  /** Anybody can keep a request open, so that alone is no failure. */
  async function endUnfinished(): Promise<never> {
    isLate = true
    await Promise.race([app.server.refuseOpen(), pause(REFUSE_MS)])
    await app.cutOpen()
    const unsaved = app.pendingTokens()
    if (unsaved === 0) {
      log.warn(
        { event: 'stop.incomplete', unsaved },
        'requests were still open and got 503: raise SHUTDOWN_SECONDS',
      )
      process.exit(0)
    }
    log.error({ event: 'stop.incomplete', unsaved }, 'Redis did not take refreshed tokens until the end')
    process.exit(1)
  }

  const meaningOf = createStopSignals({
    isUnderNpm: process.env.npm_lifecycle_event === 'start',
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
