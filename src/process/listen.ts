import { lookup } from 'node:dns/promises'
import type { Config } from '../config/config.ts'

/**
 * The one address to listen on for `HOST`. For `localhost` Fastify would open every address, all but the first
 * on servers without our hooks. Rejects where the name cannot be resolved.
 */
export async function listenAddress(host: string): Promise<string> {
  return host === 'localhost' ? (await lookup(host)).address : host
}

/** Why a server cannot listen, beginning with the variable to change. */
export function listenFailure(error: unknown, { host, opsPort }: Config['listen']): string {
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
      return `HOST: ${host} is not an address of this machine (${code})`
    default:
      return message
  }
}
