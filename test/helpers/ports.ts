// Free TCP ports on 127.0.0.1.

import { randomInt } from 'node:crypto'
import { createServer } from 'node:net'

/**
 * Below the ephemeral range of the system: an outgoing connection of a concurrent test
 * could otherwise take a port between two starts of a server.
 */
const FIRST = 15_000
const COUNT = 17_000

const start = randomInt(COUNT)
let tried = 0

/**
 * A TCP port of 127.0.0.1 that was just free, a different one for each call. Another process may
 * take it first. The caller then retries with another port.
 */
export async function freePort(): Promise<number> {
  while (tried < COUNT) {
    const port = FIRST + ((start + tried) % COUNT)
    tried += 1
    if (await isFree(port)) return port
  }
  throw new Error('no port is left')
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}
