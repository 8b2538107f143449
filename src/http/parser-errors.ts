import type { Server, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Problem } from '../errors.ts'
import { problem } from '../errors.ts'
import { newestResponse } from './connections.ts'
import { securityHeaders } from './headers.ts'

export interface ClientErrorOptions {
  newRequestId: () => string
  /** Browsers come by https. */
  secure: boolean
}

export interface ClientErrors {
  /** Node's `clientError`: what its parser objects to, and connections that break. */
  onClientError(error: Error & { code?: string }, socket: Duplex): void
  /** Answers what Node would answer by itself, or not at all. */
  watch(server: Server): void
}

/** A client that leaves its side open after the last answer is disconnected after this. */
const LINGER_MS = 1_000

/**
 * Answers what never becomes a whole request, once, as a problem. Where a response has begun nothing
 * is written: it would be taken for a part of that response, or for the answer to another request.
 */
export function createClientErrors({ newRequestId, secure }: ClientErrorOptions): ClientErrors {
  const answered = new WeakSet<Duplex>()

  function onClientError(error: Error & { code?: string }, socket: Duplex): void {
    // The parser goes on to object to whatever else arrives; a reset now could overtake the answer.
    if (answered.has(socket)) return
    const fault = parserProblem(error.code)
    const response = newestResponse(socket)
    if (fault === null || !socket.writable) socket.destroy()
    else if (response === null) answer(socket, fault)
    else if (!response.req.complete) objectToBody(socket, response, fault)
    else if (response.writableFinished) answer(socket, fault)
    else response.once('close', () => socket.end())
  }

  /** The fault lies in the body of a request that has been handed on. */
  function objectToBody(socket: Duplex, response: ServerResponse, fault: Problem): void {
    if (!response.headersSent && response.socket === socket) answer(socket, fault)
    else if (response.writableFinished) close(socket)
    else socket.destroy()
  }

  function answer(socket: Duplex, fault: Problem): void {
    const requestId = newRequestId()
    const body = fault.body(requestId)
    const fields = headersFor(requestId, body)
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`)
    socket.write(`HTTP/1.1 ${fault.status} ${fault.title}\r\n${lines.join('')}\r\n${body}`)
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
    answered.add(socket)
    socket.end()
    setTimeout(() => socket.destroy(), LINGER_MS).unref()
  }

  return {
    onClientError,
    watch(server) {
      // An expectation that cannot be met; Node would answer it with an empty 417.
      server.on('checkExpectation', (_request, response) => {
        const fault = problem('invalid_request', 'The Expect header must be 100-continue.')
        const requestId = newRequestId()
        const body = fault.body(requestId)
        response.writeHead(fault.status, headersFor(requestId, body)).end(body)
      })
      // Node would close the connection without a word.
      server.on('connect', (_request, socket) => {
        socket.on('error', () => {})
        answer(socket, problem('invalid_request', 'This server is no proxy: CONNECT is not served.'))
      })
    },
  }
}

/** null for a connection that broke: nobody is there to be told. */
function parserProblem(code = ''): Problem | null {
  if (code === 'HPE_HEADER_OVERFLOW') return problem('headers_too_large')
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return problem('request_timeout')
  return code.startsWith('HPE_')
    ? problem('invalid_request', 'This is not a well-formed HTTP request.')
    : null
}
