import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { type Problem, problem } from '../errors.ts'
import { endSlowly, mayTakeLong, newestResponse } from './connections.ts'
import { securityHeaders } from './headers.ts'

/** Longest request target, in bytes. */
export const MAX_TARGET_LENGTH = 8_192

interface ClientErrorOptions {
  newRequestId: () => string
  /** Browsers reach this server by https. */
  secure: boolean
}

/** What Node reports as a `clientError`; the parser's errors have the bytes that it read last. */
type ClientError = Error & { code?: string; rawPacket?: unknown }

interface ClientErrors {
  /** Listener of Node's `clientError`: parser errors and broken connections. */
  onClientError(error: ClientError, socket: Duplex): void
  /** Takes the requests that Node would answer itself, or drop. */
  watch(server: Server): void
}

/**
 * Answers a request that Node's parser cannot read, once for each connection, as a problem. While a response
 * is being sent it writes nothing: the client would take it for part of that response.
 */
export function createClientErrors({ newRequestId, secure }: ClientErrorOptions): ClientErrors {
  const closed = new WeakSet<Duplex>()

  function onClientError(error: ClientError, socket: Duplex): void {
    if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') endUnlessComplete(error, socket)
    else end(error, socket)
  }

  /** In a process that was held up Node's timer runs before the rest of a request is read. */
  function endUnlessComplete(error: ClientError, socket: Duplex): void {
    const before = newestResponse(socket)
    const wasComplete = before?.req.complete === true
    setImmediate(() => {
      const newest = newestResponse(socket)
      const isNew = newest !== before || !wasComplete
      if (newest === null || !newest.req.complete || !isNew) end(error, socket)
    })
  }

  function end(error: ClientError, socket: Duplex): void {
    // The parser reports every further byte as well; a reset now could overtake the response.
    if (closed.has(socket)) return
    const toSend = parserProblem(error)
    const response = newestResponse(socket)
    // Node reports a request that takes long once.
    if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT' && response !== null && mayTakeLong(response.req)) return
    if (toSend === null || !socket.writable) socket.destroy()
    else if (response === null) respond(socket, toSend)
    else if (!response.req.complete) rejectBody(socket, response, toSend)
    else if (response.writableFinished) respond(socket, toSend)
    else {
      closed.add(socket)
      response.once('close', () => close(socket))
    }
  }

  /** The error is in the body of a request whose handler already runs, or which waits for its turn. */
  function rejectBody(socket: Duplex, response: ServerResponse, toSend: Problem): void {
    if (response.socket === null && !response.writableEnded) {
      closed.add(socket)
      response.once('socket', () => rejectBody(socket, response, toSend))
    } else if (!response.headersSent && response.socket === socket) respond(socket, toSend)
    else if (response.writableFinished) close(socket)
    else socket.destroy()
  }

  function respond(socket: Duplex, toSend: Problem): void {
    const requestId = newRequestId()
    const body = toSend.body(requestId)
    const fields = headersFor(requestId, body)
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`)
    socket.write(`HTTP/1.1 ${toSend.status} ${toSend.title}\r\n${lines.join('')}\r\n${body}`)
    close(socket)
  }

  function headersFor(requestId: string, body: string): Record<string, string> {
    return {
      ...securityHeaders(secure),
      'content-type': 'application/problem+json',
      'content-length': String(Buffer.byteLength(body)),
      'x-request-id': requestId,
      date: new Date().toUTCString(),
      connection: 'close',
    }
  }

  function close(socket: Duplex): void {
    closed.add(socket)
    endSlowly(socket)
  }

  return {
    onClientError,
    watch(server) {
      // Node would answer an unknown expectation with an empty 417, and let each body come. `hooks` decides both.
      for (const event of ['checkExpectation', 'checkContinue'])
        server.on(event, (request: IncomingMessage, response: ServerResponse) =>
          server.emit('request', request, response),
        )
      // Node would close the connection without a response.
      server.on('connect', (_request, socket) => {
        socket.on('error', () => {})
        const before = newestResponse(socket)
        // Node has let go of the connection: it would not notice the end of one that still waits for a response.
        if (before !== null && !before.closed) socket.destroy()
        else respond(socket, problem('invalid_request', 'This server is no proxy: CONNECT is not served.'))
      })
    },
  }
}

/** null for a connection that broke: nobody would receive a response. */
function parserProblem({ code = '', rawPacket }: ClientError): Problem | null {
  if (code === 'HPE_HEADER_OVERFLOW') {
    return problem(beginsWithLongTarget(rawPacket) ? 'uri_too_long' : 'headers_too_large')
  }
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return problem('request_timeout')
  return code.startsWith('HPE_')
    ? problem('invalid_request', 'This is not a well-formed HTTP request.')
    : null
}

/** The parser counts the target among the header fields, and does not say what was too long. */
function beginsWithLongTarget(packet: unknown): boolean {
  if (!Buffer.isBuffer(packet)) return false
  const target = /^[\r\n]*[A-Z-]+ (\S*)/.exec(packet.toString('latin1'))?.[1] ?? ''
  return target.length > MAX_TARGET_LENGTH
}
