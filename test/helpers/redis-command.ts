// One Redis command on its own connection. redis-cli would be a process for each command.

import { Redis } from 'ioredis'
import { PATIENCE_MS } from './wait.ts'

interface CommandOptions {
  /** With TLS, and this CA certificate (PEM). The host name is not checked. */
  readonly ca?: Buffer | undefined
  readonly password?: string | undefined
}

/**
 * Sends one command to a Redis on 127.0.0.1 on its own connection. The reply has the form that redis-cli prints
 * to a pipe: one line per element, an empty one for nil. An error reply throws an Error with its text.
 */
export async function redisCommand(
  port: number,
  [command = '', ...args]: readonly string[],
  { ca, password }: CommandOptions = {},
): Promise<string> {
  const client = new Redis({
    ...{ host: '127.0.0.1', port, connectTimeout: PATIENCE_MS, commandTimeout: PATIENCE_MS, protocol: 2 },
    ...{ lazyConnect: true, retryStrategy: () => null, maxRetriesPerRequest: 0 },
    // Nothing is sent but the command.
    ...{ enableReadyCheck: false, disableClientInfo: true },
    ...(ca && { tls: { ca, checkServerIdentity: () => undefined } }),
    ...(password && { password }),
  })
  // Each failure rejects as well.
  client.on('error', () => {})
  try {
    await client.connect()
    return textOf(await client.call(command, ...args))
  } finally {
    client.disconnect()
  }
}

function textOf(reply: unknown): string {
  return Array.isArray(reply) ? reply.map(textOf).join('\n') : String(reply ?? '')
}
