import type { Readable } from 'node:stream'
import { SYSTEM_CLOCK } from '../../src/clock.ts'
import { type Config, parseConfig } from '../../src/config/config.ts'
import type { Environment } from '../../src/config/secrets.ts'
import { listenFailure } from '../../src/process/listen.ts'
import { Secret } from '../../src/secret.ts'
import { createReport, type Report } from '../report.ts'
import {
  type Accepts,
  measureFlux,
  measureInvalidToken,
  measureOperations,
  measureTokenResponse,
  probeOf,
} from './measure.ts'
import { createOperator, type Operator, Stopped } from './operator.ts'
import { createPlatform, type Platform } from './platform.ts'
import { createSignIns, type SignedIn, type SignIns } from './sign-in.ts'
import { createSiteTest, readRestoreFile, readSite, type SiteTest } from './site.ts'

/** What `--live` takes besides `--json`. */
export interface LiveOptions {
  json: boolean
  /** Account code and id of a flux, with a slash between. */
  flux: string | null
  /** Account code and id of a site that may be changed. */
  site: string | null
  /** A file with the members of that site. */
  restore: string | null
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
  const report = createReport({ json: options.json, out: around.out, error: around.error })
  const refuse = (text: string): void => {
    if (options.json) report.add('configuration', { verdict: 'fault', message: text })
    else around.error(text)
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
  const context = { config, report, operator, signIns, platform: createPlatform(config) }
  try {
    return await measure(context, { ...options, original })
  } finally {
    operator.close()
    await context.platform.close()
    await signIns.close()
  }
}

/** The tokens of the sign-ins, which are ended when all is measured. */
interface Held {
  accessToken: Secret
  refreshToken: Secret | null
  expiresAt: number
}

async function measure(
  context: Context,
  options: LiveOptions & { original: Parameters<typeof createSiteTest>[0]['original'] | null },
): Promise<number> {
  const { config, report } = context
  const held: Held[] = []
  let siteTest: SiteTest | null = null
  let code = SOUND
  report.say('Use an account made for tests: its other sessions may end.')
  try {
    const first = await context.signIns.signIn()
    if (first !== null) {
      held.push(first.tokens)
      measureTokenResponse(first, config, report)
      const accepts = await measureInvalidToken(
        context,
        first.tokens.accessToken,
        probeOf(config, options.flux),
      )
      if (options.flux !== null) await measureFlux(context, first.tokens.accessToken, options.flux)
      await measureOperations(context, first.tokens.accessToken)
      siteTest = await prepareSite(context, options, () => held.at(-1)!.accessToken)
      await siteTest?.run()
      await siteTest?.restore()
      siteTest = null
      const refreshed = await measureRefresh(context, first, accepts)
      if (refreshed !== null) held.push(refreshed)
      await measureSecondSignIn(context, held, accepts)
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
      'not changed: nothing says what it holds now. Give --restore FILE, or declare a GET of the site in OPERATIONS_FILE'
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

/** One refresh: does the refresh token change, and does the access token from before still work? */
async function measureRefresh(
  { config, report, signIns }: Context,
  { tokens }: SignedIn,
  accepts: Accepts,
): Promise<Held | null> {
  if (tokens.refreshToken === null) return null
  const outcome = await signIns.authorizationServer.refresh(tokens.refreshToken, {
    sendBefore: SYSTEM_CLOCK.monotonic() + config.oauth.tokenTimeoutMs,
    signal: AbortSignal.timeout(config.oauth.tokenTimeoutMs),
  })
  if (outcome.kind !== 'granted') {
    report.add('rotation', {
      verdict: 'fault',
      value: outcome.kind,
      message: `a refresh brings no tokens: ${outcome.reason}`,
    })
    return null
  }
  const { accessToken, refreshToken } = outcome.tokens
  report.hide(accessToken.reveal())
  if (refreshToken !== null) report.hide(refreshToken.reveal())
  const rotates = refreshToken !== null && refreshToken.reveal() !== tokens.refreshToken.reveal()
  report.add('rotation', {
    value: rotates,
    message: rotates ? 'a refresh brings a new refresh token' : 'a refresh leaves the refresh token as it is',
  })
  const old = await accepts(tokens.accessToken)
  if (old === 'unknown')
    report.add('old access token', { verdict: 'warning', value: 'unknown', message: UNKNOWN })
  else
    report.add('old access token', {
      value: old === 'accepted',
      message:
        old === 'accepted'
          ? 'still works after a refresh'
          : 'ends with a refresh: calls under way then are repeated once with the new one',
    })
  return { ...outcome.tokens, refreshToken: refreshToken ?? tokens.refreshToken }
}

const UNKNOWN =
  'not measured: a good token and a bad one get the same status here. Give --flux WAC/ID of a flux that this account may read'

/** Whether one more sign-in of the same user ends the tokens from before. */
async function measureSecondSignIn(
  { report, signIns }: Context,
  held: Held[],
  accepts: Accepts,
): Promise<void> {
  const check = 'second sign-in'
  const before = held.at(-1)!
  report.say('Once more, as the same user, to see whether a second device ends the first:')
  const second = await signIns.signIn()
  if (second === null) return
  held.push(second.tokens)
  const old = await accepts(before.accessToken)
  if (old === 'unknown') return report.add(check, { verdict: 'warning', value: 'unknown', message: UNKNOWN })
  report.add(
    check,
    old === 'accepted'
      ? { value: 'keeps', message: 'the tokens from before still work: a user may have several devices' }
      : {
          verdict: 'warning',
          value: 'ends',
          message:
            'ends the tokens from before: two devices of one user sign each other out in turn, with the reason refused',
        },
  )
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
    const failure = await signIns.authorizationServer.revoke(new Secret(token), hint)
    if (failure !== null) failures.push(failure.reason)
  }
  report.add(
    'tokens',
    failures.length === 0
      ? { value: 'revoked', message: 'the tokens of this run are revoked' }
      : {
          verdict: 'warning',
          value: until,
          message: `not all tokens of this run could be revoked (${failures[0]}): access tokens live until ${until}`,
        },
  )
}

function printSettings(report: Report, isComplete: boolean): void {
  const lines = report.findings.flatMap(({ setting }) => setting ?? [])
  if (lines.length > 0) report.say('For the environment of the server (.env):')
  else if (isComplete) report.say('No setting needs to change.')
  for (const line of lines) report.say(line)
}
