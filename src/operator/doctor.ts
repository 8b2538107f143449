import { parseArgs } from 'node:util'
import { type Config, parseConfig } from '../config/config.ts'
import { pathOfOperation } from '../config/operations.ts'
import type { Environment } from '../config/secrets.ts'
import {
  checkClient,
  checkEgress,
  checkPublicOrigin,
  checkResourceServer,
  checkSignInPage,
} from './check-http.ts'
import { checkClocks, checkRedis } from './check-redis.ts'
import { fault, ok, type Verdict, warning } from './verdict.ts'

export const DOCTOR_HELP = `Checks a deployment before users come: configuration, Redis, both servers of the platform,
and whether PUBLIC_URL leads to this server. It changes nothing, here or at the platform.

  npm run doctor                         node dist/doctor.js

  --json      prints one JSON object per line: check, verdict (ok, warning, fault), message
  --version   prints the version
  --help      prints this text

The command needs the environment of the server and runs where the server runs.

Exit code 0: nothing is broken. 1: something is broken. 2: called wrongly, or the environment has faults.
`

/** What a command line asks for. */
type DoctorCommand =
  | { kind: 'help' }
  | { kind: 'version' }
  | { kind: 'check'; json: boolean }
  | { kind: 'wrong'; message: string }

/** Reads the arguments of a command line; `wrong` for faulty ones. */
export function parseDoctorArguments(args: readonly string[]): DoctorCommand {
  const options = {
    json: { type: 'boolean' },
    help: { type: 'boolean', short: 'h' },
    version: { type: 'boolean' },
  } as const
  try {
    const { values } = parseArgs({ args: [...args], options })
    if (values.help) return { kind: 'help' }
    return values.version ? { kind: 'version' } : { kind: 'check', json: values.json === true }
  } catch (error) {
    return { kind: 'wrong', message: (error as Error).message }
  }
}

/** The verdicts in the order of the report; `isFaulty`: the environment has faults, so nothing else was checked. */
export async function examine(env: Environment): Promise<{ verdicts: Verdict[]; isFaulty: boolean }> {
  const parsed = parseConfig(env)
  if (!parsed.ok) {
    const faults = parsed.faults.map((text) => fault('configuration', text))
    return {
      verdicts: [...faults, ...parsed.hints.map((text) => warning('configuration', text))],
      isFaulty: true,
    }
  }
  const { config } = parsed
  const [redis, egress, client, page, resource, origin] = await Promise.all([
    checkRedis(config.store),
    checkEgress(config),
    checkClient(config),
    checkSignInPage(config),
    checkResourceServer(config),
    checkPublicOrigin(config),
  ])
  const verdicts = [
    ...configuration(parsed.warnings),
    ...operations(config.operations),
    ...redis.verdicts,
    ...(egress === null ? [] : [egress]),
    client,
    ...(page === null ? [] : [page.verdict]),
    resource.verdict,
    origin,
    checkClocks([
      { of: 'Redis', aheadMs: redis.clockAheadMs },
      { of: 'the authorization server', aheadMs: page?.clockAheadMs ?? null },
      { of: 'the resource server', aheadMs: resource.clockAheadMs },
    ]),
  ]
  return { verdicts, isFaulty: false }
}

function configuration(warnings: readonly string[]): Verdict[] {
  return warnings.length === 0
    ? [ok('configuration', 'no fault, no warning')]
    : warnings.map((text) => warning('configuration', text))
}

/** The declared operations, so that an operator sees what a page may call. */
function operations(declared: Config['operations']): Verdict[] {
  return declared.map((operation) => {
    const { name, method, account, body, application } = operation
    const risks = [
      ...(method === 'DELETE' ? ['deletes'] : []),
      ...(body !== null && body.schema === null ? ['takes any body'] : []),
      ...(account === 'none' ? ['belongs to no account, so WAC_ALLOWED does not limit it'] : []),
    ]
    const reader = application ? ', without a session too' : ''
    const text = `${name}: ${method} ${pathOfOperation(operation)}${reader}`
    return risks.length === 0
      ? ok('operation', text)
      : warning('operation', `${text} ${risks.join(', ')}: keep it only if a page needs it`)
  })
}

const WORDS = { ok: 'ok', warning: 'warn', fault: 'FAULT' } as const
const CHECK_WIDTH = 16

/** One line of the report. */
export function toLine({ check, verdict, message }: Verdict): string {
  return `${WORDS[verdict].padEnd(6)}${check.padEnd(CHECK_WIDTH)}${message}`
}
