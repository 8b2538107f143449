import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Call } from './call.ts'

/** Whether nobody is left to answer. */
export function isGone({ request, response }: Call): boolean {
  return response.closed || response.destroyed || request.socket.destroyed
}

/** At the response's `close`: whether all of it was handed to the connection, which Node then took back. */
export function wasDelivered(response: ServerResponse): boolean {
  return response.writableFinished && response.socket === null
}

/**
 * Calls `onDrain` when the browser has taken what waits for it. A browser that takes nothing at all for
 * `timeoutMs` is disconnected: it would hold a connection to the resource server for ever.
 */
export function awaitReader(response: ServerResponse, timeoutMs: number, onDrain: () => void): void {
  if (response.listenerCount('timeout') === 0) response.on('timeout', () => response.destroy())
  // The socket's own timer counts as progress whatever the kernel took, however little.
  const before = response.socket?.timeout ?? 0
  response.setTimeout(timeoutMs)
  response.once('drain', () => {
    response.setTimeout(before)
    onDrain()
  })
}

/**
 * Ends a half-written response so that no browser can take it for a whole one. Over HTTP/1.0, a body
 * without a length ends with its connection, so an orderly close would not do.
 */
export function breakOff({ request, response }: Call, hasLength: boolean): void {
  if (request.httpVersionMinor === 0 && !hasLength && response.socket !== null) reset(response.socket)
  else response.destroy()
}

function reset(socket: Socket): void {
  try {
    socket.resetAndDestroy()
  } catch {
    // Only plain TCP can be reset.
    socket.destroy()
  }
}
