import dns from 'node:dns'
import http from 'node:http'
import net, { isIP, isIPv6, type LookupFunction, type Socket } from 'node:net'
import tls from 'node:tls'
import { buildConnector } from 'undici'
import { type Egress, type EgressProxy, proxyFor, withoutBrackets } from './config/egress.ts'
import { afterReading } from './timeout.ts'

/** The proxy gave no connection, so nothing of the request has left. The message may be logged. */
export class EgressFailure extends Error {
  readonly code: string

  constructor(message: string, timedOut = false) {
    super(message)
    this.name = timedOut ? 'EgressTimeoutError' : 'EgressFailure'
    this.code = timedOut ? 'UND_ERR_CONNECT_TIMEOUT' : 'ERR_EGRESS_PROXY'
  }
}

const LOOKUPS = new Map<string, Parameters<LookupFunction>[2][]>()

/**
 * As `dns.lookup`, but connections that need the same name share one look-up while it is under way: the system makes two at
 * once, so a name whose DNS is silent would keep all others waiting.
 */
export const sharedLookup: LookupFunction = (host, options, done) => {
  const name = JSON.stringify([host, options])
  const known = LOOKUPS.get(name)
  if (known !== undefined) {
    known.push(done)
    return
  }
  const waiting = [done]
  LOOKUPS.set(name, waiting)
  dns.lookup(host, options, (...result) => {
    LOOKUPS.delete(name)
    for (const each of waiting) each(...result)
  })
}

/** Connects to the host of this URL, through its proxy if it has one. No environment variable of Node turns TLS checks off. */
export function connectorTo(url: string, egress: Egress, timeoutMs: number): buildConnector.connector {
  return connectorBy(proxyFor(egress, url), timeoutMs)
}

/** As `connectorTo`, by this proxy; null: straight. */
export function connectorBy(proxy: EgressProxy | null, timeoutMs: number): buildConnector.connector {
  const connector = buildConnector({ rejectUnauthorized: true, timeout: timeoutMs, lookup: sharedLookup })
  return proxy === null ? connector : throughProxy(proxy, connector, timeoutMs)
}

/** The first bytes of a body; `isWhole`: there are not more than `maxBytes`. */
export async function readStart(body: AsyncIterable<Buffer>, maxBytes: number) {
  const parts: Buffer[] = []
  let size = 0
  for await (const part of body) {
    parts.push(part)
    size += part.length
    if (size > maxBytes) break
  }
  return { bytes: Buffer.concat(parts), isWhole: size <= maxBytes }
}

/** Like a connector of undici. Returns the TCP connection to the proxy at once, for a reset. */
type ProxiedConnector = (target: buildConnector.Options, done: buildConnector.Callback) => Socket

/**
 * A connector whose connections pass the proxy by CONNECT, also those for http: the connection then ends at the
 * target, and no response of the proxy can be taken for one of the target. `connector` adds TLS to the target.
 * `timeoutMs` bounds everything up to the usable connection.
 */
export function throughProxy(
  proxy: EgressProxy,
  connector: buildConnector.connector,
  timeoutMs: number,
): ProxiedConnector {
  const name = `the egress proxy ${hostAndPort(proxy.host, proxy.port)}`
  return (target, done) => {
    const isHttps = target.protocol === 'https:'
    const authority = hostAndPort(withoutBrackets(target.hostname), target.port || (isHttps ? 443 : 80))
    const variable = isHttps ? 'HTTPS_PROXY' : 'HTTP_PROXY'
    const tcp = net.connect({ host: proxy.host, port: proxy.port, noDelay: true, lookup: sharedLookup })
    // TLS above it reports what fails; without a listener the process would end.
    tcp.on('error', () => {})
    let isDone = false
    const finish: buildConnector.Callback = (...[error, socket]) => {
      if (isDone) return
      isDone = true
      stopTimer()
      if (error === null) done(null, socket)
      else {
        tcp.destroy()
        done(error, null)
      }
    }
    const stopTimer = afterReading(timeoutMs, () =>
      finish(new EgressFailure(`${name} gave no connection to ${authority} in time`, true), null),
    )
    const request = http.request({
      method: 'CONNECT',
      path: authority,
      headers: {
        host: authority,
        ...(proxy.authorization === null ? {} : { 'proxy-authorization': proxy.authorization.reveal() }),
      },
      createConnection: () =>
        proxy.tls
          ? tls.connect({
              socket: tcp,
              host: proxy.host,
              ...(isIP(proxy.host) === 0 ? { servername: proxy.host } : {}),
              rejectUnauthorized: true,
            })
          : tcp,
    })
    request.on('error', ({ code, message }: NodeJS.ErrnoException) =>
      finish(new EgressFailure(`${name} cannot be reached, ${code ?? message}: check ${variable}`), null),
    )
    request.once('connect', ({ statusCode = 0 }, tunnel) => {
      if (statusCode < 200 || statusCode > 299)
        finish(refused(name, { authority, status: statusCode, variable }), null)
      else if (isDone) tunnel.destroy()
      else if (isHttps) connector({ ...target, httpSocket: tunnel as Socket }, finish)
      else finish(null, tunnel as Socket)
    })
    request.end()
    return tcp
  }
}

function refused(
  name: string,
  { authority, status, variable }: { authority: string; status: number; variable: string },
): EgressFailure {
  return new EgressFailure(
    `${name} refused CONNECT ${authority} with status ${status}: ${remedyOf(status, variable)}`,
  )
}

function remedyOf(status: number, variable: string): string {
  // tinyproxy says 401 where the password is wrong.
  if (status === 407 || status === 401) return `check the user and the password in ${variable}`
  const instead = 'or name the host in NO_PROXY'
  return status < 500
    ? `check that it permits CONNECT to this host and port (squid permits port 443 alone by default: SSL_ports), ${instead}`
    : `check that it reaches this host, ${instead}`
}

function hostAndPort(host: string, port: string | number): string {
  return isIPv6(host) ? `[${host}]:${port}` : `${host}:${port}`
}
