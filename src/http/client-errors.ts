import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import type { Problem } from '../errors.ts'
import { problem } from '../errors.ts'

interface ParserError extends Error {
  code?: string
}

/** What Node's parser objects to, as a problem. */
function parserProblem({ code }: ParserError): Problem {
  if (code === 'HPE_HEADER_OVERFLOW') return problem('headers_too_large')
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return problem('request_timeout')
  return problem('invalid_request', 'This is not a well-formed HTTP request.')
}

/**
 * Answers what never becomes a request. Only where no response has begun on the connection: else the
 * text would be taken for a part of it.
 */
export function createClientErrorHandler(newRequestId: () => string) {
  return function onClientError(error: ParserError, socket: Socket): void {
    const { _httpMessage: response } = socket as Socket & { _httpMessage?: { headersSent: boolean } | null }
    if (!socket.writable || error.code === 'ECONNRESET' || response) {
      socket.destroy()
      return
    }
    const fault = parserProblem(error)
    const body = fault.body(newRequestId())
    socket.end(
      `HTTP/1.1 ${fault.status} ${fault.title}\r\nContent-Type: application/problem+json\r\n` +
        `Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nContent-Length: ${Buffer.byteLength(body)}\r\n` +
        `Connection: close\r\n\r\n${body}`,
    )
  }
}

/** An expectation that cannot be met; Node would answer it with an empty 417. */
export function answerExpectations(server: Server, newRequestId: () => string): void {
  server.on('checkExpectation', (_request, response) => {
    const fault = problem('invalid_request', 'The Expect header must be 100-continue.')
    response.writeHead(fault.status, { 'content-type': 'application/problem+json', connection: 'close' })
    response.end(fault.body(newRequestId()))
  })
}
