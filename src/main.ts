import { describeFaults, parseConfig } from './config/config.ts'
import { handleHelpAndVersion } from './version.ts'

handleHelpAndVersion(
  process.argv.slice(2),
  `Runs one replica of the server. Environment variables are its only configuration.

  npm start          node dist/main.js          node --env-file=.env dist/main.js

  --help             prints this text
  --version          prints the version

docs/configuration.md lists the variables, .env.example has them with values for local use.
If the configuration has faults, the process lists all of them on stderr and exits with code 1.
SIGTERM and SIGINT stop it. A second one ends it at once, with exit code 128 plus its number.
`,
)

const parsed = parseConfig(process.env)
if (!parsed.ok) {
  process.stderr.write(describeFaults(parsed))
  process.exit(1)
}
const { config, warnings } = parsed
// Imported late: loading takes long, and faults of the configuration are to be printed at once.
const { createLog } = await import('./log.ts')
const { captureLibraryOutput } = await import('./process/library-output.ts')
const { allowSlowAddresses } = await import('./process/addresses.ts')
const log = createLog(config.logLevel)
captureLibraryOutput(log)

function crash(error: unknown): void {
  log.fatal({ event: 'crash', err: error }, 'an unexpected error ends the process: please report it')
  process.exit(1)
}
process.on('uncaughtException', crash)
process.on('unhandledRejection', crash)

allowSlowAddresses()
for (const warning of warnings) log.warn({ event: 'config.warning' }, warning)
const { runReplica } = await import('./process/replica.ts')
await runReplica(config, log)
