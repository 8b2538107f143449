// Ports: free ones of 127.0.0.1, servers on them, and those of URLs.

import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { Server as HttpServer } from 'node:http'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import type { Teardown } from './child.ts'

/**
 * Below the ephemeral range of the system: an outgoing connection of a concurrent test
 * could otherwise take a port between two starts of a server.
 */
const FIRST = 15_000
const COUNT = 2_000
/** The files of a run that tap starts at the same time have different ports. */
const LANES = 8
const LANE = Number(process.env.TAP_JOB_ID ?? 0) % LANES

const tried = new Set<number>()

/**
 * A TCP port of 127.0.0.1 that was just free, a different one for each call until all were used. Another process may
 * take it first. The caller then retries with another port.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    if (tried.size === COUNT) tried.clear()
    // At random, not the next one: two processes that count on from near places would meet again and again.
    const port = FIRST + LANES * randomInt(COUNT) + LANE
    if (tried.has(port)) continue
    tried.add(port)
    if (await isFree(port)) return port
  }
}

/** Listens on a free port of 127.0.0.1, which it returns, until the test ends. Then its connections are closed too. */
export async function listenOnLoopback(t: Teardown, server: Server): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  // Node's server ends an idle connection after five seconds: a slow client would send into one that is closing.
  if (server instanceof HttpServer) server.keepAliveTimeout = 0
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    const closed = new Promise((resolve) => server.close(resolve))
    for (const socket of sockets) socket.destroy()
    return closed
  })
  return (server.address() as AddressInfo).port
}

/** The port of a URL, also if it is the default of its scheme. */
export function portOfUrl(url: string | URL): number {
  const { port, protocol } = new URL(url)
  if (port !== '') return Number(port)
  return protocol === 'https:' ? 443 : 80
}

/** Whether something on 127.0.0.1 takes connections at this port. */
export function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}
