import { format } from 'node:util'
import { SYSTEM_CLOCK } from '../src/clock.ts'
import { envFileHints } from '../src/config/checks.ts'
import { describeTarget } from '../src/config/redis-url.ts'
import { allowSlowAddresses } from '../src/process/addresses.ts'
import { connectRedis, StoreUnavailable } from '../src/vault/vault.ts'
import { VERSION } from '../src/version.ts'
import { type Command, createTerminal, HELP, parseArguments } from './cli.ts'
import { runCommand } from './commands.ts'
import { parseOperatorConfig } from './config.ts'
import { printable } from './in-ascii.ts'

const DONE = 0
const NOT_DONE = 1
const WRONG = 2

const CONNECT_WITHIN_MS = 5_000

const terminal = createTerminal(process.stdout, process.stderr, () => performance.now())
// The Redis client prints error texts of Redis there.
console.warn = console.error = (...parts: unknown[]) => terminal.warn(format(...parts))
// The reader of the output has enough, as with `| head`.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? DONE : NOT_DONE),
)

async function main(): Promise<number> {
  const command = parseArguments(process.argv.slice(2))
  switch (command.kind) {
    case 'help':
      process.stdout.write(HELP)
      return DONE
    case 'version':
      process.stdout.write(`${VERSION}\n`)
      return DONE
    case 'wrong':
      terminal.warn(command.message)
      terminal.warn('For the list of commands: node dist/sessions.js --help')
      return WRONG
    default:
      return await run(command)
  }
}

async function run(command: Exclude<Command, { kind: 'help' | 'version' | 'wrong' }>): Promise<number> {
  const ends = command.kind === 'end' || command.kind === 'end_user' || command.kind === 'end_all'
  const ofUser = command.kind === 'end_user' || (command.kind === 'list' && command.user !== null)
  const secrets =
    ends ||
    ofUser ||
    command.kind === 'explain' ||
    command.kind === 'count_seals' ||
    command.kind === 'reseal'
  const parsed = parseOperatorConfig(process.env, {
    secrets,
    revocation: ends && command.revokes,
    users: ofUser,
    client: command.kind === 'explain',
  })
  if (!parsed.ok) {
    terminal.warn('The environment has faults:')
    for (const text of [...parsed.faults, ...envFileHints(process.env, 'dist/sessions.js')])
      process.stderr.write(`  ${printable(text)}\n`)
    return WRONG
  }
  const { config } = parsed
  if (command.kind === 'end_all') {
    const { target, prefix } = config.store
    terminal.warn(`end-all signs out every user of ${describeTarget(target)}, prefix ${prefix}`)
    if (!command.confirmed) {
      terminal.warn('To confirm, add --yes.')
      return WRONG
    }
  }
  try {
    const store = await connectRedis(
      { ...config.store, idleMs: config.idleSeconds * 1_000 },
      CONNECT_WITHIN_MS,
    )
    const options = { store, config, terminal, clock: SYSTEM_CLOCK }
    return (await runCommand(command, options).finally(store.close)) ? DONE : NOT_DONE
  } catch (error) {
    const { message, cause } = error as Error
    if (error instanceof StoreUnavailable)
      terminal.warn(`Redis stopped answering (${(cause as Error).message}): run the command again.`)
    else terminal.warn(message)
    return NOT_DONE
  }
}

allowSlowAddresses()
process.exitCode = await main()
