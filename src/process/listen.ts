import { lookup } from 'node:dns/promises'
import type { Config } from '../config/config.ts'
import type { Logger } from '../log.ts'

/**
 * The one address to listen on for `HOST`. For `localhost` Fastify would open every address, all but the first
 * on servers without our hooks. Rejects if the name cannot be resolved.
 */
export async function listenAddress(host: string): Promise<string> {
  return host === 'localhost' ? (await lookup(host)).address : host
}

/** Logs the addresses of the server, with `PORT=0` at every log level: nobody else knows the port that was picked. */
export function logListening(
  log: Logger,
  { listen, publicUrl }: Pick<Config, 'listen' | 'publicUrl'>,
  members: { url: string; opsUrl: string | null },
): void {
  const listeningLog = listen.port === 0 ? log.child({}, { level: 'info' }) : log
  listeningLog.info({ event: 'listening', ...members, publicUrl }, 'listening')
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
    case 'EAFNOSUPPORT':
      return `HOST: ${host} is not an address of this machine (${code})`
    default:
      return message
  }
}
