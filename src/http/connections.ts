import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'

interface Responses {
  /** The response to the last request of the connection, over or not. */
  newest: ServerResponse | null
  open: number
}

// On the socket itself. A Set of responses would be shorter, but entries that it has outgrown point to newer
// ones, so the garbage collector would keep whole chains of responses.
const RESPONSES = Symbol('responses')

type Followed = Duplex & { [RESPONSES]?: Responses }

/** The response to the last request of a connection, over or not; null before the first request. */
export function newestResponse(socket: Duplex): ServerResponse | null {
  return (socket as Followed)[RESPONSES]?.newest ?? null
}

interface Connections {
  /** To call when the request of this response has arrived. */
  begin(response: ServerResponse): void
  /** To call when the response is over. */
  end(response: ServerResponse): void
  /** From now on a connection ends with its last open response. */
  close(): void
}

/**
 * Lets a server close while browsers keep connections open. Node would wait for a connection that never sent
 * a request, and cut off the rest of a response that a slow reader has not received.
 */
export function trackConnections(server: Server): Connections {
  const connections = new Set<Socket>()
  let closing = false
  // Node calls a connection idle once its response is written, before a slow reader has received it.
  server.closeIdleConnections = () => {}

  server.on('connection', (socket: Socket) => {
    if (closing) return socket.destroy()
    connections.add(socket)
    socket.once('close', () => connections.delete(socket))
  })

  return {
    begin(response) {
      const responses = responsesOn(response.req.socket)
      responses.newest = response
      responses.open += 1
      if (closing) response.shouldKeepAlive = false
    },
    end(response) {
      const { socket } = response.req
      const responses = responsesOn(socket)
      responses.open -= 1
      if (closing && responses.open === 0) socket.destroySoon()
    },
    close() {
      closing = true
      for (const socket of connections) {
        const { newest, open } = responsesOn(socket)
        if (open === 0) socket.destroy()
        else newest!.shouldKeepAlive = false
      }
    },
  }
}

function responsesOn(socket: Followed): Responses {
  socket[RESPONSES] ??= { newest: null, open: 0 }
  return socket[RESPONSES]
}
