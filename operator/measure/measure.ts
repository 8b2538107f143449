import type { Config } from '../../src/config/config.ts'
import { FORMATS, type Format, type Operation, pathOfOperation } from '../../src/config/operation.ts'
import { valuesIn } from '../../src/proxy/invalid-token.ts'
import { Secret } from '../../src/secret.ts'
import type { Draft, Report } from '../report.ts'
import type { Answer, Platform } from './platform.ts'
import type { SignedIn } from './sign-in.ts'

/** What the resource server says to a token. */
export type Acceptance = 'accepted' | 'refused' | 'unknown'

/** Whether the resource server takes a token, by a call that it answers differently without one. */
export type Accepts = (token: Secret) => Promise<Acceptance>

/** The members of the token response, and `state`. */
export function measureTokenResponse(
  { tokens, response, state }: SignedIn,
  config: Config,
  report: Report,
): void {
  const { publicUrl, oauth } = config
  const { scope, callback, expires_in: expiresIn } = response ?? {}
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

  if (typeof scope !== 'string')
    report.add('scope', {
      value: 'absent',
      message: 'the token response names no scope: the one that was asked for holds',
    })
  else if (scope === oauth.scope)
    report.add('scope', { value: scope, message: 'the scope that was asked for' })
  else
    report.add('scope', {
      verdict: 'warning',
      value: scope,
      message: `another scope than OAUTH_SCOPE asks for: ${report.quote(scope)}. Calls may be refused`,
      setting: /^[\x21-\x7e]{1,200}$/.test(scope) ? `OAUTH_SCOPE=${scope}` : null,
    })

  const seconds = tokens.lifeSeconds
  if (expiresIn === undefined || expiresIn === null)
    report.add('expires_in', { value: 'absent', message: 'absent: an hour is assumed, as the document says' })
  else if (seconds === 0)
    report.add('expires_in', {
      verdict: 'warning',
      value: String(expiresIn),
      message: `${report.quote(String(expiresIn))} is no time to live: each request would refresh first`,
    })
  else report.add('expires_in', { value: seconds, message: `an access token lives ${seconds} seconds` })

  report.add(
    'refresh_token',
    tokens.refreshToken === null
      ? {
          verdict: 'warning',
          value: false,
          message: 'absent: a session ends with its access token, and users sign in again',
        }
      : { value: true, message: 'present: sessions are refreshed' },
  )

  if (state === 'echoed')
    report.add('state', { value: state, message: 'comes back, so OAUTH_REDIRECT=fixed would work too' })
  else if (oauth.redirect === 'fixed')
    report.add('state', {
      verdict: 'fault',
      value: state,
      message: 'does not come back as it was sent, and with OAUTH_REDIRECT=fixed every sign-in fails',
      setting: 'OAUTH_REDIRECT=per-login',
    })
  else
    report.add('state', {
      value: state,
      message: 'does not come back, which OAUTH_REDIRECT=per-login does not need',
    })
}

/** The response to a token that was never issued. Returns whether a token is taken. */
export async function measureInvalidToken(
  { platform, report }: { platform: Platform; report: Report },
  token: Secret,
  probe: string,
): Promise<Accepts> {
  const call = (presented: Secret) => platform.call(presented, { method: 'GET', path: probe })
  const good = await call(token)
  const bad = await call(new Secret(`doctor-${'x'.repeat(24)}`))
  if (typeof bad === 'string') {
    report.add('invalid_token', {
      verdict: 'fault',
      message: `the resource server cannot be reached (${bad})`,
    })
    return async () => 'unknown'
  }
  report.add('invalid_token', describeInvalidToken(bad, report))
  const goodStatus = typeof good === 'string' ? null : good.status
  return async (presented) => {
    const answer = await call(presented)
    if (typeof answer === 'string') return 'unknown'
    if (answer.isInvalidToken) return 'refused'
    if (answer.status < 400) return 'accepted'
    // A call that is refused with any token says nothing about this one. A 404 does, where a bad token gets another status.
    if (goodStatus === bad.status) return 'unknown'
    return answer.status === goodStatus ? 'accepted' : answer.status === bad.status ? 'refused' : 'unknown'
  }
}

function describeInvalidToken(bad: Answer, report: Report): Draft {
  const { status, body, challenge, isInvalidToken } = bad
  const header = challenge === null ? '' : `, WWW-Authenticate ${report.quote(challenge)}`
  const shape = `status ${status}${header}, ${body === '' ? 'no body' : `body ${report.quote(body)}`}`
  if (isInvalidToken) return { value: status, message: `is recognised: ${shape}` }
  if (status < 400)
    return {
      verdict: 'fault',
      value: status,
      message: `a call with a token that was never issued succeeds: ${shape}. Check BASE_URL`,
    }
  return {
    verdict: 'warning',
    value: status,
    message: `is not recognised, so a token that the platform ended early is not replaced: ${shape}`,
    setting: settingFor(bad),
  }
}

const NAME = /^[A-Za-z0-9_]+$/
const CODE = /^[A-Za-z0-9_.-]{1,64}$/

/** The value of `UPSTREAM_INVALID_TOKEN` that names this response, by its most telling code. */
function settingFor({ status, body }: Answer): string | null {
  if (status !== 400 && status !== 403) return null
  const codes = [...valuesIn(body)].filter(
    ({ path, text }) =>
      path.length > 0 && path.length <= 4 && path.every((name) => NAME.test(name)) && CODE.test(text),
  )
  const rank = ({ path, text }: { path: readonly string[]; text: string }): number =>
    (/code|error/i.test(path.at(-1)!) ? 2 : 0) + (/token|expire|auth/i.test(text) ? 1 : 0)
  const [best] = codes.sort((one, other) => rank(other) - rank(one))
  if (best === undefined || rank(best) < 2) return null
  return `UPSTREAM_INVALID_TOKEN=${status}:/${best.path.join('/')}=${best.text}`
}

/** A flux in each format. `place`: account code and id. */
export async function measureFlux(
  { platform, report }: { platform: Platform; report: Report },
  token: Secret,
  place: string,
): Promise<void> {
  const [wac, id] = place.split('/')
  for (const format of FORMATS) {
    const answer = await platform.call(token, { method: 'GET', path: `/${wac}/flux/${id}`, format })
    report.add(`flux ${format}`, describeRead(answer, report, format))
  }
}

/** Each declared GET that needs no parameters. */
export async function measureOperations(
  { platform, config, report }: { platform: Platform; config: Config; report: Report },
  token: Secret,
): Promise<void> {
  for (const operation of readable(config.operations)) {
    const path = pathWith(operation, config.wac.default)
    const draft: Draft =
      path === null
        ? { verdict: 'warning', message: 'not called: it needs an account code, and WAC is not set' }
        : describeRead(await platform.call(token, { method: 'GET', path }), report, 'JSON')
    report.add(operation.name, draft)
  }
}

function readable(operations: readonly Operation[]): Operation[] {
  return operations.filter(
    ({ method, parameters }) => method === 'GET' && Object.keys(parameters).length === 0,
  )
}

function pathWith(operation: Operation, wac: string | null): string | null {
  const path = pathOfOperation(operation)
  if (!path.includes('{wac}')) return path
  return wac === null ? null : path.replace('{wac}', wac)
}

/** A read that tells a good token from a bad one, the best that is known. */
export function probeOf(config: Config, flux: string | null): string {
  if (flux !== null) return `/${flux.replace('/', '/flux/')}`
  const [path] = readable(config.operations).flatMap(
    (operation) => pathWith(operation, config.wac.default) ?? [],
  )
  return path ?? `/${config.wac.default ?? 'doctor'}/flux/doctor`
}

const TYPE_OF: Readonly<Record<Format, RegExp>> = {
  JSON: /json/i,
  XML: /xml/i,
  CSV: /csv/i,
  JSV: /jsv/i,
}

function describeRead(answer: Answer | string, report: Report, format: Format): Draft {
  if (typeof answer === 'string')
    return { verdict: 'fault', message: `the resource server gave no response (${answer})` }
  const { status, type, etag, body } = answer
  if (status >= 400) {
    const message = `status ${status}: ${report.quote(body) || 'no body'}`
    return { verdict: 'warning', value: status, message }
  }
  const seen = `${report.quote(type) || 'no type'}, ${body.length} characters, ${etag === null ? 'no' : 'with'} ETag`
  if (type === '' || /html|javascript/i.test(type))
    return { verdict: 'warning', value: type, message: `${seen}: pages get 502 for this type` }
  if (!TYPE_OF[format].test(type))
    return { verdict: 'warning', value: type, message: `${seen}: another type than ${format}` }
  return { value: type, message: seen }
}
