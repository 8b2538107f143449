import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'

/**
 * The name under which one client is counted: an IPv4 address, or the /64 network of an IPv6 address, which a household
 * owns whole. Everything that is no address counts as one client, and so does undefined, from a connection that is reset.
 */
export function networkOf(given: string | undefined): string {
  // Some proxies write the port into X-Forwarded-For, and a zone names an interface of this host.
  const address = (given ?? '')
    .replace(/^\[(.*)\](:\d+)?$/, '$1')
    .replace(/^([\d.]+):\d+$/, '$1')
    .split('%', 1)[0]!
  if (isIP(address) === 0) return 'unknown'
  // Reads an IPv4-mapped IPv6 address as IPv4.
  const parsed = ipaddr.process(address)
  if (parsed instanceof ipaddr.IPv4) return parsed.toString()
  return parsed.parts
    .slice(0, 4)
    .map((group) => group.toString(16))
    .join(':')
}
