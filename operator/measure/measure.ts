import { SYSTEM_CLOCK } from '../../src/clock.ts'
import { GET_FLUX } from '../../src/config/built-in.ts'
import type { Config } from '../../src/config/config.ts'
import { FORMATS, type Format, type Operation, pathOfOperation } from '../../src/config/operation.ts'
import { type GrantedTokens, LARGE_TOKEN_BYTES } from '../../src/oauth/token-response.ts'
import { valuesIn } from '../../src/proxy/invalid-token.ts'
import { Secret } from '../../src/secret.ts'
import { type Addition, additionTo } from '../addition.ts'
import { hasParameter } from '../objection.ts'
import { type Draft, notMeasured, type Report } from '../report.ts'
import { type Answer, type Platform, whyUnusable } from './platform.ts'
import type { SignedIn } from './sign-in.ts'

/** What the resource server says to a token. `silent`: nothing. `expired`: its time was over, so a refusal shows nothing. */
export type Acceptance = 'accepted' | 'refused' | 'expired' | 'unknown' | 'silent'

/** Why a measurement has no result whose calls got no response. */
export const SILENT = 'the resource server gave no response'

/** Whether the resource server takes a token, by a call that it answers differently without one. */
export interface Guard {
  accepts(tokens: Pick<GrantedTokens, 'accessToken' | 'expiresAt'>): Promise<Acceptance>
  /** Why nothing that rests on its answers can be measured; null: it takes the first token. */
  readonly closed: string | null
  /** Whether this server recognises the response to an invalid token. */
  readonly isRecognised: boolean
  /** It refuses the first token for its scope. */
  readonly isScopeTooSmall: boolean
}

/** Scopes to which servers tie the refresh token. */
const OFFLINE = /^offline(_access)?$/

/** The members of the token response but its scope, and what came back with the code. */
export function measureTokenResponse(signedIn: SignedIn, config: Config, report: Report): void {
  const { tokens, response, state, iss, tookMs } = signedIn
  const { publicUrl, oauth } = config
  const { callback } = response ?? {}
  const host = new URL(publicUrl).hostname
  const callbackHost =
    typeof callback === 'string' && URL.canParse(callback) ? new URL(callback).hostname : null
  if (callbackHost === null)
    report.add('callback', { value: 'absent', message: 'the token response names no registered callback' })
  else if (callbackHost === host)
    report.add('callback', {
      value: callbackHost,
      message: 'the registered callback is on the host of PUBLIC_URL',
    })
  else
    report.add('callback', {
      verdict: 'warning',
      value: callbackHost,
      message: `the registered callback is on ${report.quote(callbackHost)}, not on ${host}: the platform may refuse sign-ins; register a callback on ${host}`,
    })

  report.add('expires_in', describeLife(tokens.lifeSeconds, response?.expires_in, report))
  report.add('refresh_token', describeRefreshToken(signedIn, config))
  const end = describeRefreshEnd(signedIn)
  if (end !== null) report.add('refresh token end', end)
  const length = tokens.accessToken.reveal().length
  if (length > LARGE_TOKEN_BYTES)
    report.add('access token', {
      verdict: 'warning',
      value: length,
      message: `has ${length} bytes: a reverse proxy in front of the resource server may refuse the header line (nginx: 8 KB, large_client_header_buffers)`,
    })
  report.add('token request', { value: tookMs, message: `took ${tookMs} ms` })
  report.add('state', describeState(state, oauth.redirect))
  report.add('iss', describeIssuer(iss, oauth.issuer, report))
}

/** Whether the scope that was asked for came. One that the resource server has just refused is never advised. */
export function measureScope(
  { response }: SignedIn,
  config: Config,
  report: Report,
  { isScopeTooSmall }: Guard,
): void {
  const draft = describeScope(response?.scope, config, report)
  const isRefused = isScopeTooSmall && draft.setting?.startsWith('OAUTH_SCOPE=')
  report.add('scope', isRefused ? { ...draft, setting: null } : draft)
}

function describeScope(scope: unknown, { oauth, baseUrl }: Config, report: Report): Draft {
  if (typeof scope !== 'string')
    return oauth.scope === baseUrl
      ? {
          verdict: 'warning',
          value: 'absent',
          message:
            'the token response names no scope, so BASE_URL, which OAUTH_SCOPE asks for by default, may have been dropped: compare it with the scopes of the client',
        }
      : {
          value: 'absent',
          message: 'the token response names no scope: whether OAUTH_SCOPE was granted is not shown',
        }
  const granted = scope.split(' ').filter((word) => word !== '')
  const missing = oauth.scope.split(' ').filter((word) => !granted.includes(word))
  if (missing.length === 0)
    return {
      value: scope,
      message:
        scope === oauth.scope
          ? 'the scope that was asked for'
          : `what was asked for, and more: ${report.quote(scope)}`,
    }
  // A scope without these words would give up the refresh token: such servers want to ask the user for it.
  const offline = missing.filter((word) => OFFLINE.test(word))
  const { words, setting } = offline.length === 0 ? NO_ADDITION : consent(oauth)
  const without = `without ${offline.join(' ')}: some servers grant it only if the user is asked`
  if (offline.length === missing.length)
    return {
      verdict: 'warning',
      value: scope,
      message: `granted is ${report.quote(scope)}, ${without}${words}`,
      setting,
    }
  const how = setting === null ? words : `, with ${setting}`
  const advised = [...granted, ...offline].join(' ')
  return {
    verdict: 'warning',
    value: scope,
    message: `another scope than OAUTH_SCOPE asks for: ${report.quote(scope)}. Calls may be refused${offline.length === 0 ? '' : `. It comes ${without}${how}`}`,
    setting: granted.length > 0 && PLAIN.test(advised) ? `OAUTH_SCOPE=${advised}` : null,
  }
}

/** Scopes that an environment file takes as they are. */
const PLAIN = /^[\w~!%&()*+,./:;<=>?@[\]^{|} -]{1,200}$/

function describeLife(seconds: number, answered: unknown, report: Report): Draft {
  if (answered === undefined || answered === null)
    return { value: 'absent', message: 'absent: an hour is assumed, as the document says' }
  if (seconds === 0)
    return {
      verdict: 'warning',
      value: String(answered),
      message: `${report.quote(String(answered))} is no time to live: each request would refresh first`,
    }
  const counted = String(answered) === String(seconds) ? '' : `, of which ${seconds} are counted`
  return {
    value: seconds,
    message: `an access token lives ${report.quote(String(answered))} seconds${counted}`,
  }
}

function describeRefreshToken({ tokens }: SignedIn, { oauth }: Config): Draft {
  if (tokens.refreshToken !== null) return { value: true, message: 'present: sessions are refreshed' }
  const isAsked = oauth.scope.split(' ').some((word) => OFFLINE.test(word))
  const how = isAsked
    ? 'servers may ask the user for offline access first, or tie it to the grant refresh_token of the client'
    : 'servers tie it to a scope (offline_access, offline) or to the grant refresh_token of the client, see docs/servers.md'
  const { words, setting } = isAsked ? consent(oauth) : NO_ADDITION
  return {
    verdict: 'warning',
    value: false,
    message: `absent: a session ends with its access token, and users sign in again; ${how}${words}`,
    setting,
  }
}

const NO_ADDITION: Addition = { setting: null, words: '' }

/** Asks the user each time, which servers want before they grant offline access. Nothing where a prompt is set. */
function consent(oauth: Config['oauth']): Addition {
  return hasParameter(oauth, 'prompt')
    ? NO_ADDITION
    : additionTo('OAUTH_AUTHORIZE_PARAMS', 'prompt=consent', oauth.authorizeParameters)
}

/** When the refresh token ends if it is not refreshed; null where that is not said. */
function describeRefreshEnd({ tokens, response }: SignedIn): Draft | null {
  const { refreshExpiresAt = null, expiresAt } = tokens
  if (refreshExpiresAt === null) return null
  const { refresh_expires_in: one, refresh_token_expires_in: other } = response ?? {}
  const seconds = Number(one ?? other)
  const isShorter = refreshExpiresAt <= expiresAt
  return isShorter
    ? {
        verdict: 'warning',
        value: seconds,
        message: `a refresh token lives ${seconds} seconds, no longer than the access token: sessions are refreshed before that, and one without a reachable server ends then. Make access tokens shorter at the server`,
      }
    : { value: seconds, message: `a refresh token lives ${seconds} seconds from the last refresh` }
}

function describeState(state: SignedIn['state'], redirect: Config['oauth']['redirect']): Draft {
  if (state === 'echoed')
    return {
      value: state,
      message: redirect === 'fixed' ? 'comes back' : 'comes back, so OAUTH_REDIRECT=fixed would work too',
    }
  return redirect === 'fixed'
    ? {
        verdict: 'fault',
        value: state,
        message: 'does not come back as it was sent, and with OAUTH_REDIRECT=fixed every sign-in fails',
        setting: 'OAUTH_REDIRECT=per-login',
      }
    : { value: state, message: 'does not come back, which OAUTH_REDIRECT=per-login does not need' }
}

function describeIssuer(iss: string | null, issuer: string | null, report: Report): Draft {
  if (iss === null)
    return issuer === null
      ? { value: 'absent', message: 'does not come back' }
      : {
          verdict: 'warning',
          value: 'absent',
          message: 'does not come back: OAUTH_ISSUER checks nothing here',
        }
  if (issuer === null)
    return { value: iss, message: `comes back as ${report.quote(iss)}, and is not checked` }
  return iss === issuer
    ? { value: iss, message: 'comes back as OAUTH_ISSUER' }
    : {
        verdict: 'fault',
        value: iss,
        message: `comes back as ${report.quote(iss)}, not as OAUTH_ISSUER: every sign-in is refused`,
        setting: /^[\x21-\x7e]{1,200}$/.test(iss) ? `OAUTH_ISSUER=${iss}` : null,
      }
}

/** The response to a token that was never issued, and whether the fresh token is taken. */
export async function measureInvalidToken(
  { platform, config, report }: { platform: Platform; config: Config; report: Report },
  token: Secret,
  { read, isRead }: Probe,
): Promise<Guard> {
  const call = (presented: Secret) => platform.call(presented, read)
  const good = await call(token)
  const bad = await call(new Secret(`doctor-${'x'.repeat(24)}`))
  if (typeof good === 'string' || typeof bad === 'string') {
    const reason = typeof bad === 'string' ? bad : String(good)
    report.add('invalid_token', {
      verdict: 'fault',
      message: `the resource server gives no response (${reason})`,
    })
    return {
      accepts: async () => 'silent',
      closed: `the resource server gives no response (${reason})`,
      isRecognised: false,
      isScopeTooSmall: false,
    }
  }
  const fault = refusalOf(good, bad, isRead, report)
  const closed = fault === null ? null : 'the resource server does not accept the fresh token'
  if (fault !== null) report.add('resource server', fault)
  report.add(
    'invalid_token',
    closed === null ? describeInvalidToken(good, bad, config, report) : notMeasured(closed),
  )
  return {
    closed,
    isRecognised: bad.isInvalidToken,
    isScopeTooSmall: fault !== null && isAboutScope(good),
    async accepts({ accessToken, expiresAt }) {
      if (closed !== null || bad.status < 400) return 'unknown'
      const answer = await call(accessToken)
      if (typeof answer === 'string') return 'silent'
      const seen = acceptanceIn(answer, good, bad)
      return seen === 'refused' && expiresAt <= SYSTEM_CLOCK.wall() ? 'expired' : seen
    },
  }
}

function acceptanceIn(answer: Answer, good: Answer, bad: Answer): Acceptance {
  if (answer.isInvalidToken) return 'refused'
  if (answer.status < 400) return 'accepted'
  // A call that is refused with any token says nothing about this one. A 404 does, where a bad token gets another status.
  if (good.status === bad.status || isFailure(answer)) return 'unknown'
  return answer.status === good.status ? 'accepted' : answer.status === bad.status ? 'refused' : 'unknown'
}

/** The fault of a resource server that does not accept a token which it was just given; null where nothing shows that. */
function refusalOf(good: Answer, bad: Answer, isRead: boolean, report: Report): Draft | null {
  const { status } = good
  const isScope = isAboutScope(good)
  const isLikeBad = isRead && (status === 401 || status === 403) && status === bad.status
  const isUnread = isRead && isFailure(good)
  // Some servers look for the flux before they look at the token, and nobody may have made this flux.
  const isSame = status !== 404 && areEqual(good, bad)
  if (status < 400 || !(isScope || good.isInvalidToken || isLikeBad || isUnread || isSame)) return null
  const [what, remedy] = isScope
    ? ['refuses', 'Its scope is too small: check OAUTH_SCOPE']
    : isFailure(good)
      ? ['fails for', 'Run this again when it works']
      : [
          'refuses',
          'Check BASE_URL, and that this resource server takes tokens of this client (their audience)',
        ]
  return {
    verdict: 'fault',
    value: status,
    message: `${what} the token that this sign-in has just brought: ${shapeOf(good, report)}. ${remedy}`,
  }
}

function isAboutScope({ challenge, body }: Answer): boolean {
  return /\binsufficient_scope\b/.test(`${challenge ?? ''} ${body}`)
}

/** Whether the resource server failed or limits the rate, which says nothing about a token. */
function isFailure({ status }: Answer): boolean {
  return status === 429 || status >= 500
}

/** Whether two answers are the same but for words that differ each time: instants, numbers of requests. */
function areEqual(one: Answer, other: Answer): boolean {
  const lasting = (answer: Answer): string =>
    `${answer.status} ${answer.challenge ?? ''}\n${answer.body}\n`.replace(/[\w.:+/-]+/g, (word) =>
      /\d/.test(word) ? '' : word,
    ) + shapesOf(answer).join()
  return one.status === other.status && lasting(one) === lasting(other)
}

function shapeOf({ status, challenge, body }: Answer, report: Report): string {
  const header = challenge === null ? '' : `, WWW-Authenticate ${report.quote(challenge)}`
  return `status ${status}${header}, ${body === '' ? 'no body' : `body ${report.quote(body)}`}`
}

function describeInvalidToken(good: Answer, bad: Answer, { upstream }: Config, report: Report): Draft {
  const { status, isInvalidToken } = bad
  const shape = shapeOf(bad, report)
  if (isInvalidToken) return { value: status, message: `is recognised: ${shape}` }
  if (status < 400)
    return {
      verdict: 'fault',
      value: status,
      message: `a call with a token that was never issued succeeds: ${shape}. Check BASE_URL`,
    }
  if (status === 429 || areEqual(good, bad))
    return notMeasured(`${status === 429 ? 'the resource server limits the rate' : SAME} (${shape})`)
  const own = shapeFor(bad, good)
  const { words, setting } =
    own === null ? NO_ADDITION : additionTo('UPSTREAM_INVALID_TOKEN', own, upstream.tokenShapes)
  return {
    verdict: 'warning',
    value: status,
    message: `is not recognised, so a token that the platform ended early is not replaced: ${shape}${words}`,
    setting,
  }
}

const NAME = /^[A-Za-z0-9_]+$/
const CODE = /^[A-Za-z0-9_.-]{1,64}$/

const SAME = 'a good token gets the same response. Give --flux WAC/ID of a flux that this account may read'

/** The value of `UPSTREAM_INVALID_TOKEN` that names this response, by its most telling code, and not the one to a good token. */
function shapeFor(bad: Answer, good: Answer): string | null {
  const { status, body } = bad
  if (status !== 400 && status !== 403) return null
  if (body === '') return good.status === status && good.body === '' ? null : `${status}:empty`
  const ofGood = shapesOf(good)
  return shapesOf(bad).find((shape) => !ofGood.includes(shape)) ?? null
}

/** The shapes of the codes in a body, the most telling one first. */
function shapesOf({ status, body }: Answer): string[] {
  const rank = ({ path, text }: { path: readonly string[]; text: string }): number =>
    (/code|error/i.test(path.at(-1)!) ? 2 : 0) + (/token|expire|auth/i.test(text) ? 1 : 0)
  return [...valuesIn(body)]
    .filter(
      ({ path, text }) =>
        path.length > 0 && path.length <= 4 && path.every((name) => NAME.test(name)) && CODE.test(text),
    )
    .filter((value) => rank(value) >= 2)
    .sort((one, other) => rank(other) - rank(one))
    .map(({ path, text }) => `${status}:/${path.join('/')}=${text}`)
}

/** A flux in each format. `place`: account code and id. */
export async function measureFlux(
  { platform, config, report }: { platform: Platform; config: Config; report: Report },
  token: Secret,
  place: string,
): Promise<void> {
  const [wac, id] = place.split('/')
  for (const format of FORMATS) {
    const answer = await platform.call(token, { method: 'GET', path: `/${wac}/flux/${id}`, format })
    report.add(`flux ${format}`, describeRead(answer, report, format))
  }
  await measureVia({ platform, config, report }, token, `/${wac}/flux/${id}`)
}

/** Whether the resource server compresses only what has no `Via`, as nginx (`gzip_proxied off`) and IIS do. */
async function measureVia(
  { platform, config, report }: { platform: Platform; config: Config; report: Report },
  token: Secret,
  path: string,
): Promise<void> {
  const gzip = { 'accept-encoding': 'gzip' }
  const call = (fields: Record<string, string>) => platform.call(token, { method: 'GET', path, fields })
  const [without, withVia] = [await call(gzip), await call({ ...gzip, via: '1.1 bff' })]
  if (typeof without === 'string' || typeof withVia === 'string')
    return report.add('compression', notMeasured(SILENT))
  if (without.status !== 200 || withVia.status !== 200) return
  const bytes = `${withVia.bytes} bytes with Via, ${without.bytes} without`
  if (withVia.encoding !== null || without.encoding === null)
    return report.add('compression', { value: withVia.encoding ?? 'none', message: bytes })
  const value = 'without Via'
  report.add(
    'compression',
    config.upstream.via
      ? {
          verdict: 'warning',
          value,
          message: `only a request without Via is answered compressed: ${bytes}`,
          setting: 'UPSTREAM_VIA=off',
        }
      : { value, message: `${bytes}: UPSTREAM_VIA=off has this effect` },
  )
}

/** Each declared GET that needs no parameters. */
export async function measureOperations(
  { platform, config, report }: { platform: Platform; config: Config; report: Report },
  token: Secret,
): Promise<void> {
  for (const operation of readable(config.operations)) {
    const path = pathWith(operation, config.wac.default)
    const read = readOf(operation)
    const draft: Draft =
      path === null
        ? { verdict: 'warning', message: 'not called: it needs an account code, and WAC is not set' }
        : describeRead(await platform.call(token, { ...read, path }), report, read.format)
    report.add(operation.name, draft)
  }
}

/** The read of a declared GET, as the server asks for it where a page names no format. */
export function readOf({ formats, formatInQuery }: Operation) {
  return { method: 'GET', format: formats === 'any' ? null : formats[0]!, formatInQuery } as const
}

/** The declared GETs that need no parameters. */
export function readable(operations: readonly Operation[]): Operation[] {
  return operations.filter(
    ({ method, parameters }) => method === 'GET' && Object.keys(parameters).length === 0,
  )
}

function pathWith(operation: Operation, wac: string | null): string | null {
  const path = pathOfOperation(operation)
  if (!path.includes('{wac}')) return path
  return wac === null ? null : path.replace('{wac}', wac)
}

/** A read that tells a good token from a bad one. */
interface Probe {
  readonly read: Parameters<Platform['call']>[1]
  /** The account may read it. */
  readonly isRead: boolean
}

/** The best probe that is known. */
export function probeOf(config: Config, flux: string | null): Probe {
  const ofFlux = readOf(GET_FLUX)
  if (flux !== null) return { read: { ...ofFlux, path: `/${flux.replace('/', '/flux/')}` }, isRead: true }
  for (const operation of readable(config.operations)) {
    const path = pathWith(operation, config.wac.default)
    if (path !== null) return { read: { ...readOf(operation), path }, isRead: true }
  }
  return { read: { ...ofFlux, path: `/${config.wac.default ?? 'doctor'}/flux/doctor` }, isRead: false }
}

/** What the type of a response says of its format. */
export const TYPE_OF: Readonly<Record<Format, RegExp>> = {
  JSON: /json/i,
  XML: /xml/i,
  CSV: /csv/i,
  JSV: /jsv/i,
}

/** `format`: null where the resource server chooses the type. */
function describeRead(answer: Answer | string, report: Report, format: Format | null): Draft {
  if (typeof answer === 'string')
    return { verdict: 'fault', message: `the resource server gave no response (${answer})` }
  const { status, type, etag, body } = answer
  if (status >= 400) {
    const message = `status ${status}: ${report.quote(body) || 'no body'}`
    return { verdict: 'warning', value: status, message }
  }
  const seen = `${report.quote(type) || 'no type'}, ${body.length} characters, ${etag === null ? 'no' : 'with'} ETag`
  const reason = whyUnusable(answer)
  if (reason !== null)
    return { verdict: 'warning', value: type, message: `${seen}: pages get 502 for it (${reason})` }
  if (format !== null && !TYPE_OF[format].test(type))
    return { verdict: 'warning', value: type, message: `${seen}: another type than ${format}` }
  return { value: type, message: seen }
}
