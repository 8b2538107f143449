import { SYSTEM_CLOCK } from './clock.ts'
import { parseOperatorConfig } from './config/operator.ts'
import { HELP, parseArguments } from './operator/arguments.ts'
import type { Work } from './operator/commands.ts'
import { perform } from './operator/commands.ts'
import { connect } from './operator/connect.ts'
import { createTerminal } from './operator/terminal.ts'
import { StoreUnavailable } from './store/store.ts'

const DONE = 0
const NOT_DONE = 1
const WRONG = 2

const terminal = createTerminal(process.stdout, process.stderr, () => performance.now())
// Whoever read the answer wants no more of it, as with `| head`.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? DONE : NOT_DONE),
)

async function run(): Promise<number> {
  const command = parseArguments(process.argv.slice(2))
  switch (command.kind) {
    case 'help':
      process.stdout.write(HELP)
      return DONE
    case 'wrong':
      terminal.note(`${command.message}\nWhat there is: node dist/sessions.js --help`)
      return WRONG
    default:
      return await work(command)
  }
}

async function work(command: Work): Promise<number> {
  const ends = command.kind === 'end' || command.kind === 'end_all'
  const secrets = ends || command.kind === 'count_seals' || command.kind === 'reseal'
  const parsed = parseOperatorConfig(process.env, { secrets, revocation: ends && command.revokes })
  if (!parsed.ok) {
    terminal.note(['The environment has faults:', ...parsed.faults.map((fault) => `  ${fault}`)].join('\n'))
    return WRONG
  }
  const { config } = parsed
  try {
    const store = await connect(config.store, config.idleSeconds * 1_000)
    const done = await perform(command, { store, config, terminal, clock: SYSTEM_CLOCK }).finally(store.close)
    return done ? DONE : NOT_DONE
  } catch (error) {
    const { message, cause } = error as Error
    if (error instanceof StoreUnavailable)
      terminal.note(`Redis did not answer, or not to the end (${(cause as Error).message}). Run it again.`)
    else terminal.note(message)
    return NOT_DONE
  }
}

process.exitCode = await run()
