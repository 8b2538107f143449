import { createServer } from 'node:net'

const given = new Set<number>()

/**
 * A TCP port of 127.0.0.1 that was free a moment ago, another one with each call. Another process may
 * take it first: who starts a server there tries again with another when that happens.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = await portOfTheMachine()
    if (given.has(port)) continue
    given.add(port)
    return port
  }
}

async function portOfTheMachine(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  if (address === null || typeof address === 'string') throw new Error('no port was given')
  return address.port
}
