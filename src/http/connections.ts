import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'

interface Answers {
  /** The response to the last request that came on the connection, over or not. */
  newest: ServerResponse | null
  underWay: number
}

// On the socket itself. A set of responses would be the shorter program, but what a set or map has
// outgrown points to what came after it, so the garbage collector would keep whole series of answers.
const ANSWERS = Symbol('answers')

type Followed = Duplex & { [ANSWERS]?: Answers }

/** The response to the last request that came on a connection, over or not; null before the first. */
export function newestResponse(socket: Duplex): ServerResponse | null {
  return (socket as Followed)[ANSWERS]?.newest ?? null
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
 * nothing was ever sent, and break off what a slow reader has not yet got of an answer.
 */
export function trackConnections(server: Server): Connections {
  const connections = new Set<Socket>()
  let closing = false
  // For Node a connection is idle as soon as its answer is complete, though a slow reader has not got it all.
  server.closeIdleConnections = () => {}

  server.on('connection', (socket: Socket) => {
    if (closing) return socket.destroy()
    connections.add(socket)
    socket.once('close', () => connections.delete(socket))
  })

  return {
    begin(response) {
      const answers = answersOn(response.req.socket)
      answers.newest = response
      answers.underWay += 1
      if (closing) response.shouldKeepAlive = false
    },
    end(response) {
      const { socket } = response.req
      const answers = answersOn(socket)
      answers.underWay -= 1
      if (closing && answers.underWay === 0) socket.destroySoon()
    },
    close() {
      closing = true
      for (const socket of connections) {
        const { newest, underWay } = answersOn(socket)
        if (underWay === 0) socket.destroy()
        else newest!.shouldKeepAlive = false
      }
    },
  }
}

function answersOn(socket: Followed): Answers {
  socket[ANSWERS] ??= { newest: null, underWay: 0 }
  return socket[ANSWERS]
}
