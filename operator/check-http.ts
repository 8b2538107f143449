import type { buildConnector } from 'undici'
import type { Config } from '../src/config/config.ts'
import { type EgressProxy, proxyFor } from '../src/config/egress.ts'
import { throughProxy } from '../src/egress.ts'
import { jsonObject } from '../src/json.ts'
import { DATA, folderOf, PATHS } from '../src/paths.ts'
import { aheadOf } from './check-sign-in.ts'
import { get, isCertificate, type Response, TIMEOUT_MS, unreachable } from './http.ts'
import { type Finding, fault, ok, warning } from './report.ts'

/** A flux and an account that no check needs to exist. */
const NOBODY = 'doctor'

/** One check of the platform, and by how many milliseconds this clock is ahead of the server's; null when unknown. */
interface PlatformCheck {
  readonly verdict: Finding
  readonly clockAheadMs: number | null
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

function judgeResourceServer(check: string, status: number): Finding {
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
export async function checkEgress({ egress, oauth, baseUrl }: Config): Promise<Finding | null> {
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
}: Pick<Config, 'publicUrl' | 'operations'>): Promise<Finding> {
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
    if (isCertificate(reason)) return fault(check, unreachable('public origin', reason, 'PUBLIC_URL'))
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
