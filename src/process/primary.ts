import type { Worker } from 'node:cluster'
import cluster from 'node:cluster'
import { AggregatorRegistry } from 'prom-client'
import type { Config } from '../config/config.ts'
import type { Logger } from '../log.ts'
import { createOps } from '../ops/routes.ts'
import { askWorker, WORKER_FAULT } from './ipc.ts'
import { listenAddress, listenFault } from './listen.ts'

const FIRST_PAUSE_MS = 100
const MAX_PAUSE_MS = 10_000
/** A worker that lived so long did not die of its start. */
const SOUND_AFTER_MS = 30_000

/**
 * `WORKERS` replicas on one public port, each a process. Replaces a worker that dies, stops them all
 * on one signal, and answers for them on the one ops port.
 */
export async function runPrimary(config: Config, log: Logger): Promise<void> {
  const { opsPort } = config.listen
  let stopping = false
  let listening = 0
  let pauseMs = FIRST_PAUSE_MS
  let exitCode = 0

  const aggregator = new AggregatorRegistry()
  const ops = createOps({
    metrics: { text: () => aggregator.clusterMetrics(), contentType: aggregator.contentType },
    async objections() {
      if (stopping) return ['the process is stopping']
      const answers = await Promise.all(workers().map(askWorker))
      const missing = workers().length < config.workers ? ['a worker is missing'] : []
      return [...new Set([...missing, ...answers.flat()])]
    },
  })

  function start(): void {
    const worker = cluster.fork()
    const startedAt = Date.now()
    worker.on('message', (message: { listening?: string }) => {
      if (message.listening === undefined) return
      listening += 1
      if (listening === config.workers) announce(message.listening)
    })
    worker.once('exit', (code, signal) => {
      if (stopping) {
        // By the signal itself where it came before the worker could listen for it: nothing was under way.
        if (code !== 0 && signal !== 'SIGTERM') exitCode = 1
        return
      }
      // The worker has written on stderr why it could not start, and another start would not cure it.
      if (code === WORKER_FAULT || listening === 0) {
        exitCode = 1
        return void stop('a worker could not start')
      }
      if (Date.now() - startedAt >= SOUND_AFTER_MS) pauseMs = FIRST_PAUSE_MS
      log.error({ event: 'worker.died', code, signal, pauseMs }, 'a worker has died and is replaced')
      setTimeout(() => {
        if (!stopping) start()
      }, pauseMs)
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)
    })
  }

  function announce(url: string): void {
    const { publicUrl } = config
    log.info({ event: 'listening', url, opsUrl, publicUrl, workers: config.workers }, 'listening')
    if (config.listen.port === 0 && !log.isLevelEnabled('info')) process.stdout.write(`listening on ${url}\n`)
  }

  async function stop(reason: string): Promise<void> {
    if (stopping) return
    stopping = true
    log.info({ event: 'stopping', reason }, 'stopping')
    const ended = workers().map((worker) => new Promise((resolve) => worker.once('exit', resolve)))
    for (const worker of workers()) worker.process.kill('SIGTERM')
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
    process.stderr.write(`The server could not start. ${listenFault(error, config.listen)}\n`)
    process.exit(1)
  }
  for (let count = 0; count < config.workers; count += 1) start()
}

function workers(): Worker[] {
  return Object.values(cluster.workers ?? {}).filter(
    (worker) => worker !== undefined && !worker.isDead(),
  ) as Worker[]
}
