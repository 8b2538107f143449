import { lookup } from 'node:dns/promises'

/**
 * The one address to listen on for `HOST`. Of `localhost` Fastify would open all addresses, each after
 * the first on a server of its own that knows nothing of our manners with connections. Rejects where
 * the name cannot be resolved.
 */
export async function listenAddress(host: string): Promise<string> {
  return host === 'localhost' ? (await lookup(host)).address : host
}
