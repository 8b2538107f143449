import { randomUUID } from 'node:crypto'
import { Agent, type buildConnector, type Dispatcher } from 'undici'
import { SYSTEM_CLOCK } from '../src/clock.ts'
import type { Config } from '../src/config/config.ts'
import { type Egress, type EgressProxy, proxyFor } from '../src/config/egress.ts'
import { copyFault } from '../src/config/secrets.ts'
import { connectorTo, EgressFailure, readStart, throughProxy } from '../src/egress.ts'
import { jsonObject } from '../src/json.ts'
import { createAuthorizationServer } from '../src/oauth/client.ts'
import { DATA, folderOf, PATHS } from '../src/paths.ts'
import { Secret } from '../src/secret.ts'
import { USER_AGENT } from '../src/version.ts'
import { fault, ok, type Verdict, warning } from './verdict.ts'

const TIMEOUT_MS = 5_000
const MAX_BODY_BYTES = 262_144
const DIRECT: Egress = { https: null, http: null, exempt: [] }
/** A flux and an account that no check needs to exist. */
const NOBODY = 'doctor'

interface Response {
  status: number
  location: string | null
  /** Epoch milliseconds of the `Date` field, or null. */
  date: number | null
  contentType: string
  server: string
  body: string
}

/** The response to one GET without following redirects, or the code of the failure, for example ECONNREFUSED. */
async function get(
  url: string,
  accept: string,
  egress: Egress = DIRECT,
  fixed: Config['upstream']['headers'] = [],
): Promise<Response | string> {
  const own = Object.fromEntries(fixed.map(({ name, value }) => [name, value.reveal()]))
  const dispatcher: Dispatcher = new Agent({ connect: connectorTo(url, egress, TIMEOUT_MS) })
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS)
    const { origin, pathname, search } = new URL(url)
    const { statusCode, headers, body } = await dispatcher.request({
      origin,
      path: `${pathname}${search}`,
      method: 'GET',
      headers: { accept, 'user-agent': USER_AGENT, ...own },
      signal,
    })
    const field = (name: string): string | null => {
      const value = headers[name]
      return (Array.isArray(value) ? value[0] : value) ?? null
    }
    const date = Date.parse(field('date') ?? '')
    return {
      status: statusCode,
      location: field('location'),
      date: Number.isNaN(date) ? null : date,
      contentType: field('content-type') ?? '',
      server: field('server') ?? '',
      body: String((await readStart(body, MAX_BODY_BYTES)).bytes),
    }
  } catch (error) {
    if (error instanceof EgressFailure) return error.message
    const { code, name } = error as NodeJS.ErrnoException
    return name === 'TimeoutError' ? 'no response within 5 s' : (code ?? name)
  } finally {
    await dispatcher.destroy()
  }
}

const TOKEN_VARIABLES = 'AUTH_URL (or OAUTH_TOKEN_URL)'
const PAGE_VARIABLES = 'AUTH_URL (or OAUTH_AUTHORIZE_URL)'

/** Codes that Node gives a certificate that it does not trust. */
const CERTIFICATE = /CERT|SIGNATURE|SELF_SIGNED|ISSUER/

function unreachable(what: string, reason: string, variable: string): string {
  if (reason.startsWith('the egress proxy')) return `the ${what} cannot be reached: ${reason}`
  return CERTIFICATE.test(reason)
    ? `the certificate of the ${what} is not trusted (${reason}): check the host name in ${variable}, and NODE_EXTRA_CA_CERTS for an own CA`
    : `the ${what} cannot be reached (${reason}): check ${variable} and that the platform runs`
}

/** `Date` has whole seconds, so its middle is half a second later. */
function aheadOf(date: number | null): number | null {
  return date === null ? null : Date.now() - date - 500
}

/** One check of the platform, and by how many milliseconds this clock is ahead of the server's; null when unknown. */
interface PlatformCheck {
  readonly verdict: Verdict
  readonly clockAheadMs: number | null
}

/**
 * Presents a refresh token that cannot exist: `invalid_grant` proves the client, `invalid_client` refutes it.
 * Starts no session at the platform.
 */
export async function checkClient({ oauth, egress }: Pick<Config, 'oauth' | 'egress'>): Promise<Verdict> {
  const check = 'client'
  const server = createAuthorizationServer({ oauth, egress, concurrency: 1, clock: SYSTEM_CLOCK })
  try {
    const sendBefore = SYSTEM_CLOCK.monotonic() + TIMEOUT_MS
    const signal = AbortSignal.timeout(Math.min(oauth.tokenTimeoutMs, TIMEOUT_MS))
    const outcome = await server.refresh(new Secret(`doctor-${randomUUID()}`), { sendBefore, signal })
    if (outcome.kind === 'refused') return ok(check, 'the token endpoint accepts CLIENT_ID and CLIENT_SECRET')
    if (outcome.kind === 'granted')
      return warning(
        check,
        'the token endpoint grants tokens for a refresh token that cannot exist: check AUTH_URL',
      )
    const { reason } = outcome
    if (/\binvalid_client\b/.test(reason)) return fault(check, wrongClient(oauth.clientSecret))
    if (/\bunauthorized_client\b/.test(reason))
      return fault(
        check,
        'the client of CLIENT_ID may not use refresh tokens: permit the grant refresh_token at the platform',
      )
    if (/^(the request was not sent|no readable response)/.test(reason)) {
      const code = /\(([^()]*)\)/.exec(reason)?.[1] ?? reason
      return fault(check, unreachable('token endpoint', code, TOKEN_VARIABLES))
    }
    if (outcome.kind === 'unavailable' && outcome.ofThisGrant)
      return warning(
        check,
        `${reason} to a refresh token that cannot exist, where invalid_grant is usual: CLIENT_SECRET is not proven`,
      )
    if (/^the response was (429|5\d\d)\b/.test(reason))
      return fault(check, `the token endpoint fails (${reason}): ask the platform, then run this again`)
    return fault(check, `this is not a token endpoint (${reason}): check ${TOKEN_VARIABLES}`)
  } finally {
    await server.close()
  }
}

function wrongClient(secret: Secret): string {
  const copied = copyFault(secret.reveal())
  return `the token endpoint says invalid_client: CLIENT_SECRET or CLIENT_ID is wrong${copied === null ? '' : `; CLIENT_SECRET ${copied}`}`
}

/** Asks for the page that users sign in on, with this client and this callback. */
export async function checkSignInPage({ oauth, egress, publicUrl }: Config): Promise<PlatformCheck | null> {
  const responseType = oauth.flows.has('code') ? 'code' : 'token'
  if (!oauth.flows.has(responseType)) return null
  const server = createAuthorizationServer({ oauth, egress, concurrency: 1, clock: SYSTEM_CLOCK })
  const nonce = randomUUID()
  const callback = `${publicUrl}${PATHS.callback}`
  const redirectUri = oauth.redirect === 'fixed' ? callback : `${callback}/${nonce}`
  const verifier = oauth.pkce && responseType === 'code' ? `${nonce}${nonce}` : null
  try {
    const url = await server.authorizeUrl({ responseType, redirectUri, state: nonce, verifier })
    const response = await get(url, 'text/html', egress)
    if (typeof response === 'string') {
      return {
        verdict: fault('sign-in page', unreachable('sign-in page', response, PAGE_VARIABLES)),
        clockAheadMs: null,
      }
    }
    return { verdict: judgeSignInPage(response, oauth, callback), clockAheadMs: aheadOf(response.date) }
  } finally {
    await server.close()
  }
}

function judgeSignInPage({ status, location }: Response, oauth: Config['oauth'], callback: string): Verdict {
  const check = 'sign-in page'
  const error = status >= 300 && status < 400 ? errorIn(location, oauth.authorizeUrl) : null
  if (error !== null)
    return fault(check, `the authorization server refuses the request (${error}): ${errorRemedy(error)}`)
  if (status < 400) return ok(check, `responds with ${status} for this client and callback`)
  if (status === 404 || status === 405)
    return fault(check, `there is no sign-in page (status ${status}): check ${PAGE_VARIABLES}`)
  if (status >= 500) return fault(check, `the sign-in page fails (status ${status}): ask the platform`)
  const fixed = oauth.redirect === 'fixed' ? '' : '; if they are right, set OAUTH_REDIRECT=fixed'
  return fault(
    check,
    `the authorization server refuses this client or callback (status ${status}): the registered callback must be on the host of PUBLIC_URL, as ${callback} is; check PUBLIC_URL and CLIENT_ID${fixed}`,
  )
}

/** The OAuth error code in a redirect, if there is one (RFC 6749 section 4.1.2.1). */
function errorIn(location: string | null, base: string): string | null {
  if (location === null || !URL.canParse(location, base)) return null
  const { searchParams, hash } = new URL(location, base)
  const error = searchParams.get('error') ?? new URLSearchParams(hash.slice(1)).get('error')
  if (error === null) return null
  return /^[a-z_]{1,64}$/.test(error) ? error : 'an unreadable error code'
}

function errorRemedy(error: string): string {
  switch (error) {
    case 'invalid_scope':
      return 'check OAUTH_SCOPE and BASE_URL'
    case 'unsupported_response_type':
    case 'unauthorized_client':
      return 'check OAUTH_FLOWS, and which flows the client of CLIENT_ID may use'
    case 'invalid_request':
      return 'check OAUTH_PKCE and OAUTH_REDIRECT'
    default:
      return 'check CLIENT_ID and PUBLIC_URL'
  }
}

/** Reads a flux without a token, which a resource server must refuse. */
export async function checkResourceServer({
  baseUrl,
  egress,
  wac,
  upstream,
}: Config): Promise<PlatformCheck> {
  const check = 'resource server'
  const url = `${baseUrl}/${wac.default ?? NOBODY}/flux/${NOBODY}`
  const response = await get(url, 'application/json', egress, upstream.headers)
  if (typeof response === 'string')
    return { verdict: fault(check, unreachable('resource server', response, 'BASE_URL')), clockAheadMs: null }
  return { verdict: judgeResourceServer(check, response.status), clockAheadMs: aheadOf(response.date) }
}

function judgeResourceServer(check: string, status: number): Verdict {
  if (status === 401 || status === 403 || status === 400)
    return ok(check, `refuses a call without a token (status ${status})`)
  if (status >= 500) return fault(check, `the resource server fails (status ${status}): ask the platform`)
  if (status === 404)
    return warning(check, 'responds with 404 to a call without a token: check the path in BASE_URL')
  return warning(
    check,
    `responds with ${status} to a call without a token, where 401 is usual: check BASE_URL`,
  )
}

/** Which servers of the platform are reached through a proxy; null where none is configured. */
export async function checkEgress({ egress, oauth, baseUrl }: Config): Promise<Verdict | null> {
  if (egress.https === null && egress.http === null) return null
  const check = 'egress proxy'
  const servers = [
    { name: 'the authorization server', url: oauth.tokenUrl },
    { name: 'the resource server', url: baseUrl },
  ].map((server) => ({ ...server, proxy: proxyFor(egress, server.url) }))
  const failures = await Promise.all(
    servers.map(({ url, proxy }) => (proxy === null ? null : proxyFailure(url, proxy))),
  )
  const failed = [...new Set(failures.filter((failure) => failure !== null))]
  if (failed.length > 0) return fault(check, failed.join('; '))
  const ways = servers.map(({ name, proxy }) =>
    proxy === null ? `${name} without a proxy` : `${name} through ${proxy.host}:${proxy.port}`,
  )
  return ok(check, ways.join(', '))
}

/** Why the proxy gives no connection to the server of this URL; null where it does. */
function proxyFailure(url: string, proxy: EgressProxy): Promise<string | null> {
  const { protocol, hostname, port, host } = new URL(url)
  // Success without TLS to the target: the other checks report on that.
  const plain: buildConnector.connector = ({ httpSocket }, done) => done(null, httpSocket!)
  return new Promise((resolve) => {
    const tcp = throughProxy(
      proxy,
      plain,
      TIMEOUT_MS,
    )({ protocol, hostname, port, host }, (...[error]) => {
      tcp.destroy()
      resolve(error === null ? null : error.message)
    })
  })
}

/** Paths that get a response of this server alone, each below a prefix that the reverse proxy must pass on. */
const PROBES = [
  [folderOf(PATHS.session), PATHS.session],
  ...[PATHS.flux, PATHS.site].map((pattern) => probeBelow(folderOf(pattern))),
] as const

function probeBelow(prefix: string) {
  return [prefix, `${prefix}/${NOBODY}/${NOBODY}/${NOBODY}`] as const
}

/** Asks for paths of this server where browsers do. */
export async function checkPublicOrigin({
  publicUrl,
  operations,
}: Pick<Config, 'publicUrl' | 'operations'>): Promise<Verdict> {
  const check = 'public origin'
  const probes = operations.length === 0 ? PROBES : [...PROBES, probeBelow(DATA)]
  const responses = await Promise.all(
    probes.map(async ([prefix, path]) => ({
      prefix,
      response: await get(`${publicUrl}${path}`, 'application/json'),
    })),
  )
  const failed = responses.find(({ response }) => typeof response === 'string')
  if (failed !== undefined) {
    const reason = String(failed.response)
    if (CERTIFICATE.test(reason)) return fault(check, unreachable('public origin', reason, 'PUBLIC_URL'))
    return warning(
      check,
      `${publicUrl} cannot be reached from here (${reason}): start the server and its reverse proxy and run this again; else check PUBLIC_URL`,
    )
  }
  const strange = responses.flatMap(({ prefix, response }) =>
    typeof response === 'string' || isOurs(response) ? [] : [{ prefix, response }],
  )
  const [first] = strange
  if (first === undefined) return ok(check, `${publicUrl} leads to this server`)
  const { status, server } = first.response
  const by = /^[\w./ -]{1,40}$/.test(server) ? server : 'another server'
  const prefixes = strange.map(({ prefix }) => prefix).join(', ')
  return fault(
    check,
    status === 502 || status === 503 || status === 504
      ? `${by} responds with ${status} below ${prefixes}: it does not reach this server; start it, then check the reverse proxy of PUBLIC_URL`
      : `${by} responds with ${status} below ${prefixes} instead of this server: the reverse proxy of PUBLIC_URL must pass ${prefixes} on`,
  )
}

/** Whether a response has the form that only this server gives it. */
function isOurs({ body, contentType }: Response): boolean {
  const { authenticated, code, requestId } = jsonObject(body) ?? {}
  return contentType.startsWith('application/problem+json')
    ? typeof code === 'string' && typeof requestId === 'string'
    : typeof authenticated === 'boolean'
}
