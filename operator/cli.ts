import { once } from 'node:events'
import type { Writable } from 'node:stream'
import { parseArgs } from 'node:util'
import type { Clock } from '../src/clock.ts'
import type { SessionStore } from '../src/vault/vault.ts'
import type { OperatorConfig } from './config.ts'
import { inAscii } from './in-ascii.ts'

/** A command line, read. */
export type Command =
  | { kind: 'help' }
  | { kind: 'version' }
  | { kind: 'count'; json: boolean }
  | { kind: 'count_seals'; json: boolean }
  /** `user`: only sessions of this user; null for all. */
  | { kind: 'list'; json: boolean; user: string | null }
  | { kind: 'explain'; json: boolean; id: string }
  | { kind: 'end'; id: string; revokes: boolean }
  | { kind: 'end_user'; user: string; revokes: boolean }
  | { kind: 'end_all'; confirmed: boolean; revokes: boolean }
  | { kind: 'reseal'; json: boolean }
  /** Not understood. */
  | { kind: 'wrong'; message: string }

export const HELP = `Manages the sessions of a running deployment, in its Redis.

  npm run sessions -- <command>          node dist/sessions.js <command>

  count               prints the number of sessions
  count --old-key     prints how many sessions are sealed under an older secret (older),
                      under a secret that is not in SESSION_SECRET (unreadable), and under
                      the newest one (newest)
  list                prints one line per session, and on stderr what its columns are: id, sign-in,
                      last activity, end without further activity, flow, token generation, client,
                      whether it is bound to a device
  explain <id>        says what the record of one session shows: whose it is, when it ends, its refreshes
                      and the last doubt; for an hour after its end, when and why it ended; the 12 digits
                      of a log line or of /auth/session are enough
  end <id>            ends one session; the beginning of its id is enough
  list --user <id>    prints the sessions of one user, by the whole id that the platform gives, where
                      OPERATIONS_FILE has an identity
  end --user <id>     ends every session of one user
  end-all --yes       ends every session; without --yes it only says in which Redis, below which prefix
  reseal              seals tokens that are under an older secret under the newest one

  --json              (count, list, explain, reseal) prints JSON, one object per line
  --no-revoke         (end, end-all) does not revoke tokens: faster for many sessions
  --help              prints this text
  --version           prints the version

The command needs the environment of the server: REDIS_URL and its options, SESSION_IDLE_SECONDS
for list, SESSION_SECRET for all commands but the plain list and count, CLIENT_ID for explain,
and the client's variables where OAUTH_REVOCATION_URL is set. Without an identity in OPERATIONS_FILE the server does
not know which user a session belongs to: the times in list tell sessions apart.

Exit code 0: done. 1: not done, for example no such session, a session that may be the user's
(no secret of SESSION_SECRET opens it, or the platform did not say at its sign-in whose it is), or
Redis cannot be reached.
2: called wrongly, or the environment has faults; nothing was done.
`

const OPTIONS = {
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean' },
  'old-key': { type: 'boolean' },
  json: { type: 'boolean' },
  user: { type: 'string' },
  yes: { type: 'boolean' },
  'no-revoke': { type: 'boolean' },
} as const

type Option = keyof typeof OPTIONS

const COMMANDS: Readonly<Record<string, readonly Option[]>> = {
  help: [],
  count: ['old-key', 'json'],
  list: ['json', 'user'],
  explain: ['json'],
  end: ['no-revoke', 'user'],
  'end-all': ['yes', 'no-revoke'],
  reseal: ['json'],
}

/** Reads the arguments of a command line; `wrong` for faulty ones. */
export function parseArguments(args: readonly string[]): Command {
  let parsed: {
    values: Partial<Record<Exclude<Option, 'user'>, boolean>> & { user?: string }
    positionals: string[]
  }
  try {
    parsed = parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true })
  } catch (error) {
    return { kind: 'wrong', message: (error as Error).message }
  }
  const { values, positionals } = parsed
  const [name, id, ...more] = positionals
  if (values.help || name === 'help') return { kind: 'help' }
  if (values.version) return { kind: 'version' }
  if (name === undefined) return { kind: 'wrong', message: 'A command is missing.' }
  const options = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (options === undefined) return { kind: 'wrong', message: `There is no command ${JSON.stringify(name)}.` }
  for (const option of Object.keys(values) as Option[]) {
    if (!options.includes(option)) return { kind: 'wrong', message: `${name} takes no --${option}.` }
  }
  const takesId = name === 'end' || name === 'explain'
  if (more.length > 0 || (id !== undefined && !takesId)) {
    return { kind: 'wrong', message: `${name} takes ${takesId ? 'one id' : 'no further argument'}.` }
  }
  const { user } = values
  if (user !== undefined && !isUserId(user))
    return { kind: 'wrong', message: '--user takes the whole id of a user, 1 to 256 characters.' }
  const json = values.json === true
  const revokes = values['no-revoke'] !== true
  switch (name) {
    case 'count':
      return { kind: values['old-key'] ? 'count_seals' : 'count', json }
    case 'list':
      return { kind: 'list', json, user: user ?? null }
    case 'reseal':
      return { kind: 'reseal', json }
    case 'end-all':
      return { kind: 'end_all', confirmed: values.yes === true, revokes }
    default:
      if (user !== undefined && id !== undefined)
        return { kind: 'wrong', message: 'end takes the id of a session or --user, not both.' }
      if (user !== undefined) return { kind: 'end_user', user, revokes }
      if (id === undefined || !/^[0-9a-f]{1,64}$/i.test(id))
        return {
          kind: 'wrong',
          message: `${name} takes the id of a session, or its beginning, in hex digits.`,
        }
      if (name === 'explain') return { kind: 'explain', json, id: id.toLowerCase() }
      return { kind: 'end', id: id.toLowerCase(), revokes }
  }
}

function isUserId(text: string): boolean {
  return text !== '' && [...text].length <= 256
}

/** Where a command writes. Nothing but visible ASCII and spaces passes, in one line for each call. */
export interface Terminal {
  /** One line of the result. */
  print(line: string): Promise<void>
  /** Faults and warnings. */
  warn(line: string): void
  /** How many are done; writes at most once a second. */
  progress(done: number, what: string): void
}

/** What every command works with. */
export interface CommandOptions {
  store: SessionStore
  config: OperatorConfig
  terminal: Terminal
  clock: Clock
}

const PROGRESS_INTERVAL_MS = 1_000

/** Results go to `out`, all else to `err`. `elapsed`: milliseconds since any instant. */
export function createTerminal(out: Writable, err: Writable, elapsed: () => number): Terminal {
  let writtenAt = elapsed()
  return {
    async print(line) {
      if (!out.write(`${inAscii(line)}\n`)) await once(out, 'drain')
    },
    warn: (line) => void err.write(`${inAscii(line)}\n`),
    progress(done, what) {
      if (elapsed() - writtenAt < PROGRESS_INTERVAL_MS) return
      writtenAt = elapsed()
      err.write(`${done} ${what} so far\n`)
    },
  }
}
