import { lookup } from 'node:dns/promises'
import type { Config } from '../config/config.ts'

/**
 * The one address to listen on for `HOST`. Of `localhost` Fastify would open all addresses, each after
 * the first on a server of its own that knows nothing of our manners with connections. Rejects where
 * the name cannot be resolved.
 */
export async function listenAddress(host: string): Promise<string> {
  return host === 'localhost' ? (await lookup(host)).address : host
}

/** Why a server does not listen, by the variable that would change that. */
export function listenFault(error: unknown, { host, opsPort }: Config['listen']): string {
  const { code, port, message } = error as NodeJS.ErrnoException & { port?: number }
  const name = port === opsPort ? 'OPS_PORT' : 'PORT'
  switch (code) {
    case 'EADDRINUSE':
      return `${name}: port ${port} is in use by another process (${code})`
    case 'EACCES':
      return `${name}: port ${port} needs rights that this process lacks (${code})`
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
    case 'EADDRNOTAVAIL':
      return `HOST: ${host} is no address of this machine (${code})`
    default:
      return message
  }
}
