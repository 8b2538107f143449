import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'

/** The two addresses of the sandbox that the page may use. The first holds no secret, the second breaks things. */
const FOR_SANDBOX = /^\/_sandbox\/(?:stage\.json|scenario\/[a-z-]+)(?:\?|$)/

/** One origin for the demo, as a reverse proxy makes one of several servers. */
interface Front {
  /** Where the browser comes in. */
  hosts: readonly string[]
  port: number
  /** Looked up for each request, as `sandboxUrl`. */
  serverUrl: string
  sandboxUrl: string
}

/**
 * Listens at each host. Requests go to the server, except the page's questions to the sandbox: a page may call no
 * other origin. A production server has no such front.
 */
export async function startFront(front: Front): Promise<void> {
  const handle = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    const { url = '/', method, headers } = incoming
    const target = new URL(FOR_SANDBOX.test(url) ? front.sandboxUrl : front.serverUrl)
    const forwardedFor = incoming.socket.remoteAddress ?? ''
    const onward = request({
      host: target.hostname,
      port: target.port,
      path: url,
      method,
      headers: { ...headers, 'x-forwarded-for': forwardedFor },
    })
    onward.on('response', (response) => {
      outgoing.writeHead(response.statusCode ?? 502, response.rawHeaders)
      response.on('error', () => outgoing.destroy())
      response.pipe(outgoing)
    })
    onward.on('error', () => outgoing.destroy())
    outgoing.on('close', () => onward.destroy())
    incoming.pipe(onward)
  }
  for (const host of front.hosts) {
    const server = createServer(handle)
    await new Promise<void>((resolve, reject) => {
      // A machine without IPv6 has one address of localhost.
      server.once('error', (error) => (host === '::1' ? resolve() : reject(error)))
      server.listen(front.port, host, resolve)
    })
  }
}
