import { BlockList, isIP, isIPv6 } from 'node:net'
import { Secret } from '../secret.ts'
import { type Kind, Refused } from './kinds.ts'

/** A proxy that opens connections by CONNECT (RFC 9110 section 9.3.6). */
export interface EgressProxy {
  /** TLS to the proxy itself. */
  readonly tls: boolean
  /** An IPv6 address has no brackets. */
  readonly host: string
  readonly port: number
  /** Value of `Proxy-Authorization`; null where the URL has no user. */
  readonly authorization: Secret | null
}

/** The proxies for each scheme, and the hosts that are reached without one. */
export interface Egress {
  readonly https: EgressProxy | null
  readonly http: EgressProxy | null
  readonly exempt: readonly string[]
}

/** `[http[s]://][user:password@]host[:port]`. The text is never printed: any part of it may be the password. */
export const EGRESS_PROXY: Kind<EgressProxy> = {
  accepts: 'the URL of a proxy: `http://` or `https://`, and a host',
  read(text) {
    const whole = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`
    if (!/^https?:/i.test(whole))
      return new Refused('must begin with http:// or https:// (of the proxy itself)')
    if (/[\s\\?#]/.test(whole) || !URL.canParse(whole))
      return new Refused(
        'must be http://host:port (in a user name or password, percent-encode / ? # @ and :)',
      )
    const url = new URL(whole)
    if (url.pathname !== '/') return new Refused('must have no path')
    const authorization = basic(url)
    if (authorization instanceof Refused) return authorization
    const tls = url.protocol === 'https:'
    const port = url.port === '' ? (tls ? 443 : 80) : Number(url.port)
    if (port === 0) return new Refused('has the port 0, which nobody can reach')
    return { tls, host: withoutBrackets(url.hostname), port, authorization }
  },
}

/** The credentials of a URL as RFC 7617 writes them. */
function basic({ username, password }: URL): Secret | null | Refused {
  if (username === '' && password === '') return null
  try {
    const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
    return new Secret(`Basic ${Buffer.from(pair).toString('base64')}`)
  } catch {
    return new Refused('has a user name or password with a % that is not percent-encoding (write %25)')
  }
}

/** Nothing is a fault: other programs read this variable too, each with extensions of its own. */
export const NO_PROXY_LIST: Kind<readonly string[]> = {
  accepts: 'host names, domains, addresses or networks, separated by commas; `*` for all',
  read: (text) => text.split(/[\s,]+/).filter((entry) => entry !== ''),
}

/** The proxy for requests to this URL, or null where they go straight there. */
export function proxyFor(egress: Egress, address: string | URL): EgressProxy | null {
  const { protocol, hostname, port } = new URL(address)
  const proxy = protocol === 'https:' ? egress.https : egress.http
  if (proxy === null) return null
  const target = { host: withoutBrackets(hostname), port: port || (protocol === 'https:' ? '443' : '80') }
  return egress.exempt.some((entry) => isExempt(entry, target)) ? null : proxy
}

/** Whether one entry of NO_PROXY covers a host, as curl and Go read it: a domain covers every name below it. */
function isExempt(entry: string, { host, port }: { host: string; port: string }): boolean {
  if (entry === '*') return true
  const [, network = '', bits] = /^([^/]+)\/(\d{1,3})$/.exec(entry) ?? []
  if (bits !== undefined) return isIP(network) !== 0 && isInNetwork(host, network, Number(bits))
  const [, name = '', onlyPort] = isIPv6(entry) ? [entry, entry] : (/^(.+?)(?::(\d+))?$/.exec(entry) ?? [])
  if (onlyPort !== undefined && onlyPort !== port) return false
  const bare = withoutBrackets(name)
  if (isIP(bare) !== 0) return isInNetwork(host, bare, isIPv6(bare) ? 128 : 32)
  const domain = bare.replace(/^\*?\./, '').toLowerCase()
  return host === domain || (isIP(host) === 0 && host.endsWith(`.${domain}`))
}

function isInNetwork(host: string, network: string, bits: number): boolean {
  const family = isIPv6(network) ? 'ipv6' : 'ipv4'
  if (isIP(host) === 0 || isIPv6(host) !== isIPv6(network) || bits > (family === 'ipv6' ? 128 : 32))
    return false
  const list = new BlockList()
  list.addSubnet(network, bits, family)
  return list.check(host, family)
}

/** The host of a URL as `net` takes it: an IPv6 address without brackets. */
export function withoutBrackets(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1')
}
