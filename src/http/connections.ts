import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Lets a server close while browsers keep connections open. From `close` on a connection lasts as long
 * as the responses under way on it; Node itself would wait for one on which nothing was ever sent, and
 * for each that is kept alive after its last answer.
 */
export function trackConnections(server: Server): { close(): void } {
  const connections = new Map<Socket, Set<ServerResponse>>()
  let closing = false

  server.on('connection', (socket: Socket) => {
    if (closing) return socket.destroy()
    connections.set(socket, new Set())
    socket.once('close', () => connections.delete(socket))
  })

  server.on('request', (request, response) => {
    const { socket } = request
    const responses = connections.get(socket)
    responses?.add(response)
    if (closing) response.shouldKeepAlive = false
    response.once('close', () => {
      responses?.delete(response)
      if (closing && responses?.size === 0) socket.destroySoon()
    })
  })

  return {
    close() {
      closing = true
      for (const [socket, responses] of connections) {
        if (responses.size === 0) socket.destroy()
        for (const response of responses) response.shouldKeepAlive = false
      }
    },
  }
}
