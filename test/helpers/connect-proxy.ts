// An egress proxy that opens connections by CONNECT, over real sockets.

import { readFile } from 'node:fs/promises'
import { createServer, type IncomingMessage } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import net, { type Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { Certificate } from './certificate.ts'
import type { Teardown } from './child.ts'
import { listenOnLoopback } from './ports.ts'

interface ProxyOptions {
  /** `user:password` that clients must present; without them they get 407. */
  credentials?: string
  /** Clients reach the proxy itself by TLS. */
  tls?: Certificate
  /** Leads every host that is not listed in this table nowhere: name to port on 127.0.0.1. */
  hosts?: Readonly<Record<string, number>>
}

/** A CONNECT proxy on a free port. */
export async function startConnectProxy(t: Teardown, options: ProxyOptions = {}) {
  const { credentials, tls, hosts } = options
  const targets: string[] = []
  const clientEnds: (string | null)[] = []
  const tunnels = new Set<readonly [Socket, Socket]>()
  const waiting: (() => void)[] = []
  let status = 200

  const server =
    tls === undefined
      ? createServer()
      : createTlsServer({ key: await readFile(tls.keyFile), cert: await readFile(tls.certFile) })
  server.on('request', (_request, response) => response.writeHead(501).end())
  server.on('connection', (socket: Socket) => {
    socket.on('error', () => {})
  })
  server.on('connect', (request: IncomingMessage, client: Socket) => {
    client.on('error', () => {})
    targets.push(request.url ?? '')
    const expected = credentials && `Basic ${Buffer.from(credentials).toString('base64')}`
    if (expected !== undefined && request.headers['proxy-authorization'] !== expected) refuse(client, 407)
    else if (status === 0) waiting.push(() => connect(request.url ?? '', client))
    else if (status === 200) connect(request.url ?? '', client)
    else refuse(client, status)
  })

  function refuse(client: Socket, code: number): void {
    client.end(
      `HTTP/1.1 ${code} Refused\r\nProxy-Authenticate: Basic realm="x"\r\nContent-Length: 3\r\n\r\nno\n`,
    )
  }

  function connect(target: string, client: Socket): void {
    const { hostname, port } = new URL(`tunnel://${target}`)
    const upstream =
      hosts === undefined
        ? net.connect({ host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) })
        : net.connect({ host: '127.0.0.1', port: hosts[hostname] ?? 9 })
    upstream.on('error', () => refuse(client, 502))
    upstream.once('connect', () => {
      const tunnel = [client, upstream] as const
      tunnels.add(tunnel)
      client.write('HTTP/1.1 200 Connection established\r\n\r\n')
      client.on('data', (data) => upstream.write(data))
      upstream.on('data', (data) => client.write(data))
      client.once('error', ({ code }: NodeJS.ErrnoException) => void clientEnds.push(code ?? 'unknown'))
      client.once('end', () => void clientEnds.push(null))
      for (const [one, other] of [tunnel, [upstream, client] as const]) {
        one.on('error', () => {})
        one.once('close', () => {
          tunnels.delete(tunnel)
          other.destroy()
        })
      }
    })
  }

  const port = await listenOnLoopback(t, server)
  t.teardown(() => {
    for (const [, upstream] of tunnels) upstream.destroy()
  })
  return {
    port,
    url: `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${port}`,
    /** The target of every CONNECT, oldest first. */
    targets,
    /** Why each closed tunnel was closed by the client, as an error code; null: in an orderly way. */
    clientEnds,
    /** Tunnels that are open now. */
    open: () => tunnels.size,
    /** Responds to CONNECT with this status from now on; 0: not at all. 200 is the beginning. */
    respondWith(code: number): void {
      status = code
    },
    /** Answers every CONNECT that waits, and those to come, with 200. */
    admit(): void {
      status = 200
      for (const go of waiting.splice(0)) go()
    },
    /** Breaks every open tunnel on both sides. */
    cut(): void {
      for (const socket of [...tunnels].flat()) {
        if (socket instanceof TLSSocket) socket.destroy()
        else socket.resetAndDestroy()
      }
    },
  }
}
