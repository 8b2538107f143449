import type { Readable } from 'node:stream'
import { type Config, parseConfig } from '../../src/config/config.ts'
import type { Environment } from '../../src/config/secrets.ts'
import { listenFailure } from '../../src/process/listen.ts'
import { Secret } from '../../src/secret.ts'
import { measureDraft, patternsFor } from '../draft/draft.ts'
import type { Pattern } from '../draft/pattern.ts'
import { printable } from '../in-ascii.ts'
import { createReport, notMeasured, ofEnvironment, type Report } from '../report.ts'
import {
  type Held,
  measureRefresh,
  measureRefusedGrant,
  measureReuse,
  measureSecondSignIn,
  measureWrongSecret,
} from './grants.ts'
import {
  measureFlux,
  measureInvalidToken,
  measureOperations,
  measureScope,
  measureTokenResponse,
  probeOf,
  readable,
} from './measure.ts'
import { createOperator, type Operator, Stopped } from './operator.ts'
import { createPlatform, type Platform } from './platform.ts'
import { createSignIns, type SignIns } from './sign-in.ts'
import { createSiteTest, readOfSite, readRestoreFile, readSite, type SiteTest } from './site.ts'

/** What `--live` takes besides `--json`. */
export interface LiveOptions {
  json: boolean
  /** Account code and id of a flux, with a slash between. */
  flux: string | null
  /** Account code and id of a site that may be changed. */
  site: string | null
  /** A file with the members of that site. */
  restore: string | null
  /** Addresses of the resource server for a draft of `OPERATIONS_FILE`. */
  draft: readonly string[]
  /** A new file for that draft. */
  out: string | null
  /** Seconds after its use at which a used refresh token is presented again. */
  reuseDelays?: readonly number[]
}

/** How the command meets its surroundings. */
interface Surroundings {
  input: Readable
  out: (line: string) => void
  error: (line: string) => void
  /** Aborted when the operator stops the command. */
  stop: AbortSignal
}

const SOUND = 0
const BROKEN = 1
const WRONG = 2
const INTERRUPTED = 130

interface Context {
  config: Config
  report: Report
  operator: Operator
  platform: Platform
  signIns: SignIns
}

/** `npm run doctor -- --live`: measures what the service's document does not show. Returns the exit code. */
export async function runLive(env: Environment, options: LiveOptions, around: Surroundings): Promise<number> {
  const parsed = parseConfig(env)
  const faults = parsed.ok ? [] : [...parsed.faults, ...parsed.hints]
  const original = options.restore === null ? null : readRestoreFile(options.restore)
  if (typeof original === 'string') faults.push(original)
  if (parsed.ok && !parsed.config.oauth.flows.has('code'))
    faults.push('OAUTH_FLOWS must have code: --live measures that flow')
  if (parsed.ok && options.site !== null && original === null && readOfSite(parsed.config) === undefined)
    faults.push(
      '--site: nothing says what the site holds now. Give --restore FILE, or declare a GET of the site in OPERATIONS_FILE',
    )
  const { patterns, faults: ofDraft } = parsed.ok
    ? patternsFor(options.draft, parsed.config, env)
    : { patterns: [], faults: [] }
  faults.push(...ofDraft, ...(parsed.ok ? foreignAccounts(options, parsed.config.wac) : []))
  const report = createReport({ json: options.json, out: around.out, error: around.error })
  const refuse = (text: string): void => {
    if (options.json) around.out(JSON.stringify(ofEnvironment('fault', text)))
    else around.error(printable(text))
  }
  if (!parsed.ok || typeof original === 'string' || faults.length > 0) {
    for (const text of faults) refuse(text)
    return WRONG
  }
  const { config } = parsed
  for (const { value } of config.upstream.headers) report.hide(value.reveal())
  for (const secret of [config.oauth.clientSecret, ...config.sessionSecrets]) report.hide(secret.reveal())
  const operator = createOperator(around.input, around.stop)
  let signIns: SignIns
  try {
    signIns = await createSignIns(config, report, operator)
  } catch (error) {
    operator.close()
    refuse(`The sign-in cannot be served. ${listenFailure(error, config.listen)}. Stop the server first.`)
    return WRONG
  }
  const context = { config, report, operator, signIns, platform: createPlatform(config, operator) }
  try {
    return await measure(context, { ...options, original, patterns, env })
  } finally {
    operator.close()
    await context.platform.close()
    await signIns.close()
  }
}

/** The accounts named for a read or a change that the server would refuse. */
function foreignAccounts(
  { flux, site }: Pick<LiveOptions, 'flux' | 'site'>,
  { allowed }: Config['wac'],
): string[] {
  return Object.entries({ flux, site }).flatMap(([option, place]) => {
    const wac = place?.split('/', 1)[0]
    return wac === undefined || allowed === null || allowed.has(wac)
      ? []
      : [`--${option}: the account ${wac} is none of WAC_ALLOWED`]
  })
}

async function measure(
  context: Context,
  options: LiveOptions & {
    original: Parameters<typeof createSiteTest>[0]['original'] | null
    patterns: readonly Pattern[]
    env: Environment
  },
): Promise<number> {
  const { config, report, signIns } = context
  const held: Held[] = []
  const hold = (tokens: Held): void => void held.push(tokens)
  let siteTest: SiteTest | null = null
  let code = SOUND
  report.say('Use an account made for tests: its other sessions may end.')
  try {
    const first = await signIns.signIn()
    if (first !== null) {
      hold(first.tokens)
      measureTokenResponse(first, config, report)
      if (!signIns.hasDate())
        report.add('clock', {
          value: 'unknown',
          message: 'the authorization server sends no Date, so its clock was not seen',
        })
      const token = first.tokens.accessToken
      const guard = await measureInvalidToken(context, token, probeOf(config, options.flux))
      measureScope(first, config, report, guard)
      if (guard.closed === null) {
        if (options.flux !== null) await measureFlux(context, token, options.flux)
        await measureOperations(context, token)
        if (options.patterns.length > 0) await measureDraft(context, token, options)
        siteTest = await prepareSite(context, options, () => held.at(-1)!.accessToken)
        await siteTest?.run()
        await siteTest?.restore()
        siteTest = null
      } else
        for (const check of [
          ...(options.flux === null ? [] : ['flux']),
          ...readable(config.operations).map(({ name }) => name),
          ...(options.draft.length === 0 ? [] : ['draft']),
          ...(options.site === null ? [] : ['site']),
        ])
          report.add(check, notMeasured(guard.closed))
      const { rotation, good } = await measureRefresh(context, first, guard, hold)
      const refused = await measureRefusedGrant(context, good)
      await measureSecondSignIn(context, first, rotation, guard, hold)
      const isOver = await measureReuse(context, { rotation, newest: held.at(-1) }, hold, options.reuseDelays)
      if (refused !== null) await measureWrongSecret(context, refused, { last: held.at(-1), isOver })
    }
  } catch (error) {
    if (!(error instanceof Stopped)) throw error
    report.say('Stopped: what was begun is put in order.')
    code = INTERRUPTED
  } finally {
    await siteTest?.restore()
    await endTokens(context, held)
  }
  if (code === SOUND && report.findings.some(({ verdict }) => verdict === 'fault')) code = BROKEN
  printSettings(report, code === SOUND)
  return code
}

async function prepareSite(
  context: Context,
  { site, original: given }: Parameters<typeof measure>[1],
  token: () => Secret,
): Promise<SiteTest | null> {
  if (site === null) return null
  const { report, operator, platform } = context
  const place = site.split('/') as [string, string]
  const original = given ?? (await readSite({ ...context, token: token() }, place))
  if (original === null) {
    const message =
      'not changed: the declared GET does not show what it holds now. Correct it, or give --restore FILE'
    report.add('site', { verdict: 'warning', message })
    return null
  }
  report.say(`Site ${site} is changed and put back. It must be one made for tests. Type yes to go on:`)
  if ((await operator.answer()) !== 'yes') {
    report.add('site', {
      verdict: 'warning',
      value: 'skipped',
      message: 'not changed: the answer was not yes',
    })
    return null
  }
  return createSiteTest({ platform, report, operator, token, place, original })
}

async function endTokens({ config, report, signIns }: Context, held: readonly Held[]): Promise<void> {
  const [last] = held.map(({ expiresAt }) => expiresAt).sort((one, other) => other - one)
  if (last === undefined) return
  const until = new Date(last).toISOString()
  if (config.oauth.revocationUrl === null)
    return report.add('tokens', {
      value: until,
      message: `no OAUTH_REVOCATION_URL is set: the access tokens of this run live until ${until}, the refresh tokens as long as the platform says`,
    })
  const failures: string[] = []
  const hints = new Map<string, 'refresh_token' | 'access_token'>()
  for (const { refreshToken, accessToken } of held) {
    if (refreshToken !== null) hints.set(refreshToken.reveal(), 'refresh_token')
    hints.set(accessToken.reveal(), 'access_token')
  }
  for (const [token, hint] of hints) {
    const failure = await signIns.authorizationClient.revoke(new Secret(token), hint)
    if (failure !== null) failures.push(failure.reason)
  }
  report.add(
    'tokens',
    failures.length === 0
      ? {
          value: 'revoked',
          message:
            'the authorization server has revoked the tokens of this run: a resource server that caches its answers may take them longer',
        }
      : {
          verdict: 'warning',
          value: until,
          message: `not all tokens of this run could be revoked (${failures[0]}): access tokens live until ${until}`,
        },
  )
}

function printSettings(report: Report, isComplete: boolean): void {
  const lines = new Set(report.findings.flatMap(({ setting }) => setting ?? []))
  const isFine = report.findings.every(({ verdict }) => verdict === 'ok')
  if (lines.size > 0) report.say('For the environment of the server (.env):')
  else if (isComplete)
    report.say(isFine ? 'No setting needs to change.' : 'No line for the environment follows from this.')
  for (const line of lines) report.say(line)
}
