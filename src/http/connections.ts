import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type { FastifyReply } from 'fastify'
import { afterReading } from '../timeout.ts'

interface Responses {
  /** The response to the last request of the connection, over or not. */
  newest: ServerResponse | null
  open: number
  /** Requests that came after the last response. */
  late: number
  /** Of the request that has its turn. */
  reply: FastifyReply | null
}

// On the socket itself. A Set of responses would be shorter, but entries that it has outgrown point to newer
// ones, so the garbage collector would keep whole chains of responses.
const RESPONSES = Symbol('responses')

type TrackedSocket = Duplex & { [RESPONSES]?: Responses }

/** The response to the last request of a connection, over or not; null before the first request. */
export function newestResponse(socket: Duplex): ServerResponse | null {
  return (socket as TrackedSocket)[RESPONSES]?.newest ?? null
}

/** To call with the reply of each request at its turn. */
export function noteReply(reply: FastifyReply): void {
  responsesOn(reply.request.raw.socket).reply = reply
}

const LONG_BODIES = new WeakSet<IncomingMessage>()

/** The body of this request may take longer than those of others. To go with a limit of its own. */
export function permitLongBody(request: IncomingMessage): void {
  LONG_BODIES.add(request)
}

/** Whether a request is still on its way and may take longer than others. */
export function mayTakeLong(request: IncomingMessage): boolean {
  return LONG_BODIES.has(request) && !request.complete
}

const SLOW_READERS = new WeakSet<ServerResponse>()

/** Ends a response, with its connection, that its client does not take. */
export function endSlowReader(response: ServerResponse): void {
  SLOW_READERS.add(response)
  response.destroy()
}

/** Whether `endSlowReader` ended it. */
export function wasSlowReader(response: ServerResponse): boolean {
  return SLOW_READERS.has(response)
}

/** The connections of one server, which `watch` names. */
export interface Connections {
  /**
   * Hands each request to `handler` once the response before it is written and, in a stop, the port is closed: until then
   * it waits, unread. One whose connection ends before its turn has done nothing: no log, file or call upstream knows of it.
   */
  inTurn(handler: RequestListener): RequestListener
  /** To call with the server before it listens. */
  watch(server: Server): void
  /** From now on each response is the last of its connection, and says so. */
  drain(): void
  /** Of the requests to which nothing has been sent. */
  unanswered(): FastifyReply[]
  /** From now on a connection ends with its last open response. Closes the port, and resolves when it is closed. */
  close(): Promise<void>
}

/** More requests on one connection at once than any browser or proxy sends: Node reads some 1,500 before it stops. */
const MAX_PIPELINED = 32
/** How long a closing server waits for the first request of a connection. */
export const FIRST_REQUEST_MS = 500
/** How long a connection that this server has ended may still bring data. */
const LINGER_MS = 1_000
/** So many connections may wait to be accepted: Node asks the system for 511, Linux adds one. */
const MOST_WAITING = 512
/** Connections may come between the look at the port in a turn and the end of that turn, if it takes so long. */
const LONG_TURN_MS = 1
/** A process whose turns are all long closes the port in one of them. */
const MOST_LONG_TURNS = 50

/**
 * Gives pipelined requests their turns, and lets a server close while browsers keep connections open. Node would wait for
 * a connection that never sent a request (nodejs/node#63452), and cut off the rest of a response that a slow reader has
 * not received.
 */
export function createConnections(): Connections {
  const connections = new Set<Socket>()
  let listening: Server | null = null
  let accepted = 0
  let draining = false
  let closing = false
  /** The requests that wait until the port is closed, null before and after. */
  let held: (() => void)[] | null = null

  function begin(response: ServerResponse, socket: Socket): void {
    const responses = responsesOn(socket)
    responses.newest = response
    responses.open += 1
    // Node drops what came in one packet with the end of a request to change the protocol: what follows may be half a request.
    if (draining || response.req.headers.upgrade !== undefined) response.shouldKeepAlive = false
    if (responses.open > MAX_PIPELINED) socket.destroy()
    response.on('close', () => {
      responses.open -= 1
      if (responses.reply?.raw === response) responses.reply = null
      if (closing && responses.open === 0) socket.destroySoon()
    })
  }

  /** What comes after our `Connection: close` is no request (RFC 9112 section 9.6). Node keeps each until the connection ends. */
  function dropLate(socket: Socket): void {
    const responses = responsesOn(socket)
    responses.late += 1
    if (responses.late > MAX_PIPELINED) socket.destroy()
  }

  function drain(): void {
    draining = true
    for (const socket of connections) {
      const { newest, open } = responsesOn(socket)
      if (open > 0) newest!.shouldKeepAlive = false
    }
  }

  return {
    drain,
    inTurn(handler) {
      return (request, response) => {
        const { socket } = request
        if (socket.writableEnded) return dropLate(socket)
        begin(response, socket)
        // Node tells a response that has no connection yet of none of its ends, so nothing would release what it holds.
        const handle = (): void => {
          if (held !== null) held.push(handle)
          else if (!socket.destroyed) handler(request, response)
        }
        if (response.socket === null) response.once('socket', handle)
        else handle()
      }
    },
    watch(server) {
      // Node calls a connection idle once its response is written, before a slow reader has received it (nodejs/node#43890).
      server.closeIdleConnections = () => {}
      listening = server
      server.on('connection', (socket: Socket) => {
        accepted += 1
        connections.add(socket)
        socket.once('close', () => connections.delete(socket))
        if (closing) endIfSilent(socket)
      })
    },
    unanswered: () =>
      [...connections]
        .map((socket) => responsesOn(socket).reply)
        .filter((reply) => reply !== null)
        .filter(({ raw, sent }) => !sent && !raw.headersSent),
    async close() {
      drain()
      closing = true
      for (const socket of connections) if (newestResponse(socket) === null) endIfSilent(socket)
      // The system resets connections that this process has not accepted when the port closes. No request is handled
      // meanwhile: others would come in that time.
      const requests: (() => void)[] = []
      held = requests
      const all = accepted + MOST_WAITING
      let longTurns = 0
      for (let isQuiet = false; !isQuiet && accepted < all && longTurns < MOST_LONG_TURNS; ) {
        const before = accepted
        // This turn may have no look at the port: the next one has.
        await setImmediate()
        const begunAt = performance.now()
        await setImmediate()
        const isLong = performance.now() - begunAt > LONG_TURN_MS
        if (isLong) longTurns += 1
        isQuiet = accepted === before && !isLong
      }
      // In this turn: Fastify, which closes it too, has further steps before.
      listening?.close()
      held = null
      for (const handle of requests) handle()
      for (const socket of connections) {
        const { newest, open } = responsesOn(socket)
        if (newest !== null && open === 0) socket.destroySoon()
      }
    },
  }
}

/** A reverse proxy may have opened this connection for a request that is still on its way. */
function endIfSilent(socket: Socket): void {
  const stopTimer = afterReading(FIRST_REQUEST_MS, () => {
    if (newestResponse(socket) === null) socket.destroy()
  })
  socket.once('close', stopTimer)
}

/** From now on this server ends the connection slowly, see `endSlowly`. */
export function closeSlowly(socket: Socket): void {
  socket.destroySoon = () => endSlowly(socket)
}

/** The client may still send a body that nobody reads: a reset then could overtake the response. RFC 9112 section 9.6. */
export function endSlowly(socket: Duplex & { destroySoon?: () => void }): void {
  // Node calls it after the last response, and a closing server after any.
  socket.destroySoon = () => {}
  socket.end()
  setTimeout(() => socket.destroy(), LINGER_MS).unref()
}

function responsesOn(socket: TrackedSocket): Responses {
  socket[RESPONSES] ??= { newest: null, open: 0, late: 0, reply: null }
  return socket[RESPONSES]
}

/** To await after the end of connections: Node tells a response of its end a turn of the event loop later. */
export async function responsesEnded(): Promise<void> {
  await setImmediate()
  await setImmediate()
}
