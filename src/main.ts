import { buildApp } from './app.ts'
import { parseConfig } from './config.ts'
import { createLog } from './log.ts'

const parsed = parseConfig(process.env)
if (!parsed.ok) {
  process.stderr.write(
    `The configuration has faults:\n${parsed.faults.map((fault) => `  ${fault}\n`).join('')}`,
  )
  process.exit(1)
}
const { config, warnings } = parsed
const log = createLog(config.logLevel)
for (const warning of warnings) log.warn({ event: 'config.warning' }, warning)

const app = await buildApp({
  config,
  log,
  onStoreRefused(message) {
    process.stderr.write(`REDIS_URL: the server refuses our credentials (${message})\n`)
    process.exit(1)
  },
})

for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => void stop(signal))
process.on('uncaughtException', crash)
process.on('unhandledRejection', crash)

try {
  const { host, port, opsPort } = config.listen
  const opsUrl = opsPort === 0 ? null : await app.ops.listen({ host, port: opsPort })
  const url = await app.server.listen({ host, port })
  app.start()
  log.info({ event: 'listening', url, opsUrl, publicUrl: config.publicUrl }, 'listening')
} catch (error) {
  process.stderr.write(
    `The server could not start: ${error instanceof Error ? error.message : String(error)}\n`,
  )
  process.exit(1)
}

async function stop(signal: string): Promise<void> {
  log.info({ event: 'stopping', signal }, 'stopping')
  app.announceStop()
  setTimeout(() => {
    log.error({ event: 'stop.incomplete' }, 'not everything could be finished in time')
    process.exit(1)
  }, config.shutdownSeconds * 1_000).unref()
  await app.stop()
  process.exit(0)
}

function crash(error: unknown): void {
  log.fatal({ event: 'crash', err: error }, 'a fault that nobody foresaw')
  process.exit(1)
}
