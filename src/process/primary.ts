import cluster, { type Worker } from 'node:cluster'
import { setTimeout as pause } from 'node:timers/promises'
import { AggregatorRegistry } from 'prom-client'
import type { Config } from '../config/config.ts'
import type { Logger, SharedWarning } from '../log.ts'
import { createOpsServer } from '../ops/routes.ts'
import { createReadinessQuery, PERMANENT_FAILURE } from './ipc.ts'
import { listenAddress, listenFailure, logListening } from './listen.ts'

const FIRST_PAUSE_MS = 100
const MAX_PAUSE_MS = 10_000
/** A worker ends by itself within `SHUTDOWN_SECONDS`; one that does not hangs. */
const WORKER_SLACK_MS = 1_000
/** A worker that lived this long did not fail at its start. */
const STABLE_AFTER_MS = 30_000
/** Longest wait of a scrape for a worker that starts. */
const START_WAIT_MS = 3_000

/**
 * Runs `WORKERS` server processes on one public port. Replaces a worker that dies, stops all on one signal, and
 * serves health and metrics for all on the one ops port.
 */
export async function runPrimary(config: Config, log: Logger): Promise<void> {
  const { opsPort } = config.listen
  let stopping = false
  let listening = 0
  /** One promise for each worker that starts, until it listens or has ended. */
  const starting = new Set<Promise<void>>()
  let pauseMs = FIRST_PAUSE_MS
  let exitCode = 0
  /** Subjects of the warnings that this replica has logged. */
  const logged = new Set<string>()
  /** Those of the workers' last replies. */
  let warnings: string[] = []

  const aggregator = new AggregatorRegistry()
  const askReadiness = createReadinessQuery()
  const ops = createOpsServer({
    metrics: {
      async text() {
        // A worker that starts would miss the question.
        await Promise.race([Promise.all(starting), pause(START_WAIT_MS, null, { ref: false })])
        const text = await aggregator.clusterMetrics()
        if (text === '') throw new Error('no worker was asked')
        return text
      },
      contentType: aggregator.contentType,
    },
    readiness: {
      async missing() {
        if (stopping) return ['the process is stopping']
        // A worker that starts replies only when it has started.
        const present = workers()
        if (present.length < config.workers) return ['a worker is missing']
        if (starting.size > 0) return ['a worker is starting']
        const replies = await Promise.all(present.map(askReadiness))
        warnings = [...new Set(replies.flatMap((reply) => reply.warnings))]
        return [...new Set(replies.flatMap(({ missing }) => missing))]
      },
      warnings: () => warnings,
    },
    log,
  })

  function startWorker(): void {
    const worker = cluster.fork()
    const startedAt = Date.now()
    let noteStarted = (): void => {}
    const start = new Promise<void>((resolve) => {
      noteStarted = () => {
        starting.delete(start)
        resolve()
      }
    })
    starting.add(start)
    worker.on('message', (message: { listening?: string; warning?: SharedWarning }) => {
      if (message.warning !== undefined) logOnce(message.warning)
      if (message.listening === undefined) return
      listening += 1
      noteStarted()
      if (listening !== config.workers) return
      logListening(log, config, { url: message.listening, opsUrl, workers: config.workers })
    })
    // A message to a worker that has just died; its exit follows.
    worker.on('error', () => {})
    worker.once('exit', (code, signal) => {
      noteStarted()
      if (stopping) {
        // A worker that has not yet installed its signal handler ends by SIGTERM itself, with nothing in flight.
        if (code !== 0 && signal !== 'SIGTERM') exitCode = 1
        return
      }
      // Once all have listened, the others go on: they may serve, and hold tokens that are not stored yet.
      if (listening === 0 || (code === PERMANENT_FAILURE && listening < config.workers)) {
        exitCode = 1
        return void stop('a worker could not start')
      }
      if (Date.now() - startedAt >= STABLE_AFTER_MS) pauseMs = FIRST_PAUSE_MS
      log.error({ event: 'worker.died', code, signal, pauseMs }, 'a worker died and is being replaced')
      setTimeout(() => {
        if (!stopping) startWorker()
      }, pauseMs)
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)
    })
  }

  function logOnce({ subject, members, text }: SharedWarning): void {
    if (logged.has(subject)) return
    logged.add(subject)
    log.warn(members, text)
  }

  function killHanging(): void {
    log.error({ event: 'stop.incomplete' }, 'a worker does not end: it is killed')
    for (const worker of workers()) worker.process.kill('SIGKILL')
  }

  async function stop(reason: string): Promise<void> {
    if (stopping) return
    stopping = true
    const delaySeconds = config.shutdownDelaySeconds
    log.info({ event: 'stopping', reason, delaySeconds }, 'stopping')
    // Each worker waits for the delay itself: a signal to the process group reaches the workers as well.
    const ended = workers().map((worker) => new Promise((resolve) => worker.once('exit', resolve)))
    for (const worker of workers()) worker.process.kill('SIGTERM')
    setTimeout(killHanging, (delaySeconds + config.shutdownSeconds) * 1_000 + WORKER_SLACK_MS)
    await Promise.all(ended)
    await ops.close()
    process.exit(exitCode)
  }

  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal))
  if (process.connected) process.once('disconnect', () => void stop('disconnect'))

  let opsUrl: string | null = null
  try {
    const host = await listenAddress(config.listen.host)
    if (opsPort !== 0) opsUrl = await ops.listen({ host, port: opsPort })
  } catch (error) {
    process.stderr.write(`The server could not start. ${listenFailure(error, config.listen)}\n`)
    process.exit(1)
  }
  // JSON would turn a gauge that is not known, NaN, into null.
  cluster.setupPrimary({ serialization: 'advanced' })
  for (let count = 0; count < config.workers; count += 1) startWorker()
}

function workers(): Worker[] {
  return Object.values(cluster.workers ?? {}).filter(
    (worker) => worker !== undefined && !worker.isDead(),
  ) as Worker[]
}
