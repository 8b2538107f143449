import { parseArgs } from 'node:util'

/** What an operator asks for. */
export type Command =
  | { kind: 'help' }
  | { kind: 'count'; json: boolean }
  | { kind: 'count_seals'; json: boolean }
  | { kind: 'list'; json: boolean }
  | { kind: 'end'; id: string; revokes: boolean }
  | { kind: 'end_all'; revokes: boolean }
  | { kind: 'reseal'; json: boolean }
  /** The command line makes no sense, or lacks a confirmation. */
  | { kind: 'wrong'; message: string }

export const HELP = `Looks after the sessions of a running deployment, in its Redis.

  npm run sessions -- <command>          node dist/sessions.js <command>

  count               how many sessions there are
  count --old-key     how many are sealed under a secret that is not the newest,
                      and how many under none that is known here
  list                one line a session: id, signed in, last seen, ends (if the browser
                      stays away), flow, generation of the tokens, client
  end <id>            ends one session; the beginning of its id is enough
  end-all --yes       ends every session
  reseal              seals tokens under the newest secret that are under an older one

  --json              (count, list, reseal) the answer as JSON, one object a line
  --no-revoke         (end, end-all) does not revoke tokens: faster, where there are many
  --help              this text

The environment is the server's: REDIS_URL and what goes with it, SESSION_IDLE_SECONDS for list,
SESSION_SECRET for all but list and the plain count, and the client where OAUTH_REVOCATION_URL is
set. Of reseal's numbers, newest are those that were so before. Which user a session is of is known
to nobody here: list tells them apart by their times.

Exit code 0: done. 1: not done, for example no such session, or Redis cannot be reached.
2: called wrongly, or the environment has faults. Nothing was done then.
`

const OPTIONS = {
  help: { type: 'boolean', short: 'h' },
  'old-key': { type: 'boolean' },
  json: { type: 'boolean' },
  yes: { type: 'boolean' },
  'no-revoke': { type: 'boolean' },
} as const

type Option = keyof typeof OPTIONS

const COMMANDS: Readonly<Record<string, readonly Option[]>> = {
  help: [],
  count: ['old-key', 'json'],
  list: ['json'],
  end: ['no-revoke'],
  'end-all': ['yes', 'no-revoke'],
  reseal: ['json'],
}

/** The command that these arguments ask for. */
export function parseArguments(args: readonly string[]): Command {
  let parsed: { values: Partial<Record<Option, boolean>>; positionals: string[] }
  try {
    parsed = parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true })
  } catch (error) {
    return { kind: 'wrong', message: (error as Error).message }
  }
  const { values, positionals } = parsed
  const [name, id, ...more] = positionals
  if (values.help || name === 'help') return { kind: 'help' }
  if (name === undefined) return { kind: 'wrong', message: 'A command is missing.' }
  const options = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (options === undefined) return { kind: 'wrong', message: `There is no command ${JSON.stringify(name)}.` }
  for (const option of Object.keys(values) as Option[]) {
    if (!options.includes(option)) return { kind: 'wrong', message: `${name} takes no --${option}.` }
  }
  if (more.length > 0 || (id !== undefined && name !== 'end')) {
    return { kind: 'wrong', message: `${name} takes ${name === 'end' ? 'one id' : 'no further argument'}.` }
  }
  const json = values.json === true
  const revokes = values['no-revoke'] !== true
  switch (name) {
    case 'count':
      return { kind: values['old-key'] ? 'count_seals' : 'count', json }
    case 'list':
      return { kind: 'list', json }
    case 'reseal':
      return { kind: 'reseal', json }
    case 'end-all':
      if (values.yes) return { kind: 'end_all', revokes }
      return { kind: 'wrong', message: 'end-all signs every user out. To do so, add --yes.' }
    default:
      if (id === undefined || !/^[0-9a-f]{1,64}$/i.test(id))
        return { kind: 'wrong', message: 'end takes the id of a session, or its beginning, in hex digits.' }
      return { kind: 'end', id: id.toLowerCase(), revokes }
  }
}
