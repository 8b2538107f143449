import { existsSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { type Config, parseConfig } from '../src/config/config.ts'
import { FORM_TYPES, pathOfOperation } from '../src/config/operation.ts'
import type { Environment } from '../src/config/secrets.ts'
import { ID, WAC } from '../src/paths.ts'
import { checkClient } from './check-client.ts'
import { checkEgress, checkPublicOrigin, checkResourceServer } from './check-http.ts'
import { checkClocks, checkRedis } from './check-redis.ts'
import { checkSignInPage } from './check-sign-in.ts'
import type { LiveOptions } from './measure/live.ts'
import { type Finding, ofEnvironment, ok, warning } from './report.ts'

export const DOCTOR_HELP = `Checks a deployment before users come: configuration, Redis, both servers of the platform,
and whether PUBLIC_URL leads to this server. Without --live it changes nothing, here or at the platform.

  npm run doctor                         node dist/doctor.js

  --json      prints one JSON object per line: check, verdict (ok, warning, fault), message
  --live      signs in by your browser and measures what the platform's document does not show (docs/first-day.md):
              one line each with the setting or the consequence that follows; --json adds value and setting.
              It takes the place of the server at PUBLIC_URL, HOST and PORT: stop the server first.
              Use an account made for tests: its other sessions may end.
  --flux WAC/ID                         with --live: reads this flux in each format
  --site WAC/ID --write                 with --live: changes this site, which must be made for tests, and puts it back
  --restore FILE                        with --site: JSON with name, description, code and parentInfrastructureID of the
              site as they are now; not needed if OPERATIONS_FILE declares a GET of the site
  --draft URL...                        with --live: reads these addresses of the resource server, by GET alone, and prints a
              draft of OPERATIONS_FILE, with what is guessed in it
  --out FILE                            with --draft: writes the draft into this file too, which must not exist
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
  | ({ kind: 'live' } & LiveOptions)
  | { kind: 'wrong'; message: string }

/** Reads the arguments of a command line; `wrong` for faulty ones. */
export function parseDoctorArguments(args: readonly string[]): DoctorCommand {
  const options = {
    json: { type: 'boolean' },
    live: { type: 'boolean' },
    flux: { type: 'string' },
    site: { type: 'string' },
    write: { type: 'boolean' },
    restore: { type: 'string' },
    draft: { type: 'string', multiple: true },
    out: { type: 'string' },
    help: { type: 'boolean', short: 'h' },
    version: { type: 'boolean' },
  } as const
  try {
    const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true })
    if (values.help) return { kind: 'help' }
    if (values.version) return { kind: 'version' }
    const { json = false, live = false, write = false, flux = null, site = null, restore = null } = values
    const { out = null } = values
    const message =
      wrongUse({ live, write, flux, site, restore }) ??
      wrongDraft({ live, named: values.draft ?? [], more: positionals, out })
    if (message !== null) return { kind: 'wrong', message }
    const draft = [...(values.draft ?? []), ...positionals]
    return live ? { kind: 'live', json, flux, site, restore, draft, out } : { kind: 'check', json }
  } catch (error) {
    return { kind: 'wrong', message: (error as Error).message }
  }
}

function wrongUse(given: {
  live: boolean
  write: boolean
  flux: string | null
  site: string | null
  restore: string | null
}): string | null {
  const { live, write, flux, site, restore } = given
  if (!live && (write || flux !== null || site !== null || restore !== null))
    return '--flux, --site, --write and --restore belong to --live'
  const [fluxWac = '', fluxId = '', ...more] = (flux ?? 'a/a').split('/')
  if (!WAC.test(fluxWac) || !ID.test(fluxId) || more.length > 0)
    return '--flux must be an account code and the id of a flux: WAC/ID'
  const [siteWac = '', siteId = '', ...rest] = (site ?? 'a/1').split('/')
  if (
    !WAC.test(siteWac) ||
    !/^\d{1,16}$/.test(siteId) ||
    !Number.isSafeInteger(Number(siteId)) ||
    rest.length > 0
  )
    return '--site must be an account code and the number of a site: WAC/ID'
  if (write !== (site !== null))
    return '--site changes a site and puts it back, so it needs --write, and --write needs --site'
  if (restore !== null && site === null) return '--restore belongs to --site'
  return null
}

function wrongDraft(given: {
  live: boolean
  named: readonly string[]
  more: readonly string[]
  out: string | null
}): string | null {
  const { live, named, more, out } = given
  if (named.length === 0 && more.length > 0) return `${JSON.stringify(more[0])} is no option`
  if (named.length > 0 && !live) return '--draft belongs to --live'
  if (out === null) return null
  if (named.length === 0) return '--out belongs to --draft'
  return existsSync(out) ? `--out ${JSON.stringify(out)} is there already: name a new file` : null
}

/** The findings in the order of the report; `isFaulty`: the environment has faults, so nothing else was checked. */
export async function examine(env: Environment): Promise<{ findings: Finding[]; isFaulty: boolean }> {
  const parsed = parseConfig(env)
  if (!parsed.ok) {
    const faults = parsed.faults.map((text) => ofEnvironment('fault', text))
    return {
      findings: [...faults, ...parsed.hints.map((text) => ofEnvironment('warning', text))],
      isFaulty: true,
    }
  }
  const { config } = parsed
  const asked = checkClient(config)
  const [redis, egress, client, page, resource, origin] = await Promise.all([
    checkRedis(config.store),
    checkEgress(config),
    asked,
    checkSignInPage(config, asked),
    checkResourceServer(config),
    checkPublicOrigin(config),
  ])
  const platform = [...client.findings, ...(page?.findings ?? []), resource.verdict]
  const findings = [
    ...configuration(parsed.warnings),
    ...operations(config),
    ...redis.verdicts,
    ...(egress === null ? [] : [egress]),
    // A proxy that fails is one cause: what cannot be reached through it is not said again.
    ...platform.filter(({ message }) => egress?.verdict !== 'fault' || !THROUGH_PROXY.test(message)),
    origin,
    checkClocks([
      { of: 'Redis', aheadMs: redis.clockAheadMs },
      {
        of: 'the authorization server',
        aheadMs: page?.clockAheadMs ?? null,
        silent: page?.isReached === true && page.clockAheadMs === null,
      },
      { of: 'the resource server', aheadMs: resource.clockAheadMs },
    ]),
  ]
  return { findings, isFaulty: false }
}

const THROUGH_PROXY = /cannot be reached: the egress proxy/

function configuration(warnings: readonly string[]): Finding[] {
  return warnings.length === 0
    ? [ok('configuration', 'no fault, no warning')]
    : warnings.map((text) => ofEnvironment('warning', text))
}

/** The declared operations, so that an operator sees what a page may call. */
function operations({ operations: declared, wac: { allowed } }: Config): Finding[] {
  return declared.map((operation) => {
    const { name, method, account, body, application } = operation
    const risks = [
      ...(method === 'DELETE' ? ['deletes'] : []),
      ...(body !== null && 'schema' in body && takesAnything(body.schema) ? ['takes any body'] : []),
      ...(body !== null && 'types' in body && body.types.some((type) => FORM_TYPES.has(type))
        ? ['passes on forms, in whose fields some platforms find another account, id or method']
        : []),
      ...(application && account !== 'none' && allowed === null
        ? ['is public in every account, since WAC_ALLOWED is not set']
        : []),
      ...(account === 'none' ? ['belongs to no account, so WAC_ALLOWED does not limit it'] : []),
    ]
    const reader = application ? ', without a session too' : ''
    const text = `${name}: ${method} ${pathOfOperation(operation)}${reader}`
    return risks.length === 0
      ? ok('operation', text)
      : warning('operation', `${text} ${risks.join(', ')}: keep it only if a page needs it`)
  })
}

/** Whether a schema asks for nothing but an object. */
function takesAnything(schema: object | null): boolean {
  return (
    schema === null ||
    Object.keys(schema).every((keyword) => ['type', 'title', 'description'].includes(keyword))
  )
}
