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
// Imported late: loading takes long, and faults of the configuration are to be printed at once.
const { createLog } = await import('./log.ts')
const { runPrimary } = await import('./process/primary.ts')
const { runServerProcess } = await import('./process/worker.ts')
const log = createLog(config.logLevel)

function crash(error: unknown): void {
  log.fatal({ event: 'crash', err: error }, 'an unexpected error ends the process: please report it')
  process.exit(1)
}
process.on('uncaughtException', crash)
process.on('unhandledRejection', crash)

if (cluster.isPrimary) for (const warning of warnings) log.warn({ event: 'config.warning' }, warning)
await (config.workers > 1 && cluster.isPrimary ? runPrimary(config, log) : runServerProcess(config, log))
