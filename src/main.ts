import cluster from 'node:cluster'
import { parseConfig } from './config/config.ts'

const parsed = parseConfig(process.env)
if (!parsed.ok) {
  process.stderr.write(
    `The configuration has faults:\n${parsed.faults.map((fault) => `  ${fault}\n`).join('')}`,
  )
  process.exit(1)
}
const { config, warnings } = parsed
// Only now: loading them takes most of the time in which a fault is to be told.
const { createLog } = await import('./log.ts')
const { runPrimary } = await import('./process/primary.ts')
const { runReplica } = await import('./process/worker.ts')
const log = createLog(config.logLevel)

function crash(error: unknown): void {
  log.fatal({ event: 'crash', err: error }, 'a fault that nobody foresaw')
  process.exit(1)
}
process.on('uncaughtException', crash)
process.on('unhandledRejection', crash)

if (cluster.isPrimary) for (const warning of warnings) log.warn({ event: 'config.warning' }, warning)
await (config.workers > 1 && cluster.isPrimary ? runPrimary(config, log) : runReplica(config, log))
