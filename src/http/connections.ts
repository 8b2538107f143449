import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'

type Followed = Duplex & { [NEWEST]?: ServerResponse }

// A property and no weak map, which costs the garbage collector more than the request costs this room.
const NEWEST = Symbol('newest response')

/** The response to the last request that came on a connection, over or not; undefined before the first. */
export function newestResponse(socket: Duplex): ServerResponse | undefined {
  return (socket as Followed)[NEWEST]
}

export interface Connections {
  /** To be told of each response when its request has come. */
  begin(response: ServerResponse): void
  /** And when it is over. */
  end(response: ServerResponse): void
  /** From now on a connection lasts as long as the responses under way on it. */
  close(): void
}

/**
 * Lets a server close while browsers keep connections open: Node itself would wait for one on which
 * nothing was ever sent, and for each that is kept alive after its last answer.
 */
export function trackConnections(server: Server): Connections {
  const connections = new Set<Socket>()
  const underWay = new Set<ServerResponse>()
  let closing = false

  server.on('connection', (socket: Socket) => {
    if (closing) return socket.destroy()
    connections.add(socket)
    socket.once('close', () => connections.delete(socket))
  })

  function isBusy(socket: Socket): boolean {
    for (const { req } of underWay) if (req.socket === socket) return true
    return false
  }

  return {
    begin(response) {
      const socket: Followed = response.req.socket
      socket[NEWEST] = response
      underWay.add(response)
      if (closing) response.shouldKeepAlive = false
    },
    end(response) {
      underWay.delete(response)
      const { socket } = response.req
      if (closing && !isBusy(socket)) socket.destroySoon()
    },
    close() {
      closing = true
      const busy = new Set<Socket>()
      for (const response of underWay) {
        response.shouldKeepAlive = false
        busy.add(response.req.socket)
      }
      for (const socket of connections) if (!busy.has(socket)) socket.destroy()
    },
  }
}
