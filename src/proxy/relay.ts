import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Dispatcher } from 'undici'
import { endSlowReader } from '../http/connections.ts'
import { responseHeaders } from './headers.ts'
import type { Call } from './outgoing-request.ts'
import { Patience } from './patience.ts'
import { opensAsFile } from './response-rules.ts'

interface RelayOptions {
  call: Call
  controller: Dispatcher.DispatchController
  status: number
  headers: IncomingHttpHeaders
  /** A browser that takes less than `LEAST_BYTES` while data waits for it for so long is disconnected. */
  readerTimeoutMs: number
  /** Names and values in turn, from http/headers.ts. */
  securityHeaders: readonly string[]
  /** Where browsers find what a `Location` names; null: nowhere. */
  ownPathOf: (location: string) => string | null
}

/** Up to this size copying a body into a string costs less than it saves. */
const SHORT_BYTES = 8 * 1024

/** Below it a browser would occupy a connection to the resource server for hours. */
const LEAST_BYTES = 64 * 1024

/** Responses whose head may have to go alone; one immediate for all that came in one turn. */
const HEADS: Relay[] = []

function sendHeads(): void {
  for (const relay of HEADS.splice(0)) relay.sendHead()
}

function endResponse(response: ServerResponse): void {
  response.end()
}

/** A response on its way to the browser, at the browser's pace. */
export class Relay {
  private readonly options: RelayOptions
  private begun = false
  private over = false
  /** With the browser, since it last took `LEAST_BYTES`; null before it keeps this server waiting. */
  private patience: Patience | null = null
  private taken = 0

  /** Writes the head. Hooks that add security fields do not run for it, so it carries them all. */
  constructor(options: RelayOptions) {
    this.options = options
    const { call, status, headers, securityHeaders, ownPathOf } = options
    const fields = responseHeaders(status, headers, securityHeaders)
    if (call.outgoing.anyType && opensAsFile(headers)) fields.push('content-disposition', 'attachment')
    // RFC 9110 section 10.2.2: of a 201 it names what was created.
    const own = status === 201 && headers.location !== undefined ? ownPathOf(headers.location) : null
    if (own !== null) fields.push('location', own)
    fields.push('x-request-id', call.requestId)
    call.hijack()
    call.response.writeHead(status, fields)
  }

  write(chunk: Buffer): void {
    const { call, controller, headers } = this.options
    const { response } = call
    const waitsAlready = response.writableNeedDrain
    const whole = !this.begun && Number(headers['content-length']) === chunk.length
    this.begun = true
    // A string joins the head in one write; a Buffer needs a second write, which costs twice as much.
    const short = whole && chunk.length <= SHORT_BYTES
    if (short ? response.write(chunk.toString('latin1'), 'latin1') : response.write(chunk)) return
    controller.pause()
    if (!waitsAlready) this.awaitReader()
  }

  /**
   * Resumes when the browser has taken what is buffered for it. The time during which it did not want more counts, not
   * that in which the resource server had no more.
   */
  private awaitReader(): void {
    const { call, controller, readerTimeoutMs } = this.options
    const { response } = call
    this.patience ??= new Patience(readerTimeoutMs, () => endSlowReader(response))
    const { patience } = this
    if (this.taken >= LEAST_BYTES) {
      this.taken = 0
      patience.renew()
    }
    const buffered = response.writableLength
    patience.run()
    const stop = (): void => patience.pause()
    response.once('close', stop)
    response.once('drain', () => {
      stop()
      response.off('close', stop)
      this.taken += buffered
      controller.resume()
    })
  }

  end(): void {
    this.over = true
    const { call, headers } = this.options
    // In the turn of the last chunk Node would add an empty write: with a length, wait one turn. A chunked body
    // has a last chunk to write, so it ends in the same turn.
    const hasLength = headers['content-length'] !== undefined
    if (this.begun && hasLength) process.nextTick(endResponse, call.response)
    else call.response.end()
  }

  /**
   * Breaks the response off, so that no browser takes it for a whole one. Over HTTP/1.0 a body without a
   * length ends with its connection, so an orderly close would not do.
   */
  cut(): void {
    this.over = true
    const { call, headers } = this.options
    const { request, response } = call
    const endsWithConnection = request.httpVersionMinor === 0 && headers['content-length'] === undefined
    if (endsWithConnection && response.socket !== null) reset(response.socket)
    else response.destroy()
  }

  /**
   * Node sends the head with the first part of the body. If that does not follow at once, the head
   * goes alone; a body in the same packet is here before the immediate runs.
   */
  sendHeadSoon(): void {
    if (HEADS.push(this) === 1) setImmediate(sendHeads)
  }

  sendHead(): void {
    const { response } = this.options.call
    if (!this.begun && !this.over && !response.destroyed) response.flushHeaders()
  }
}

function reset(socket: Socket): void {
  try {
    socket.resetAndDestroy()
  } catch {
    // Only plain TCP can be reset.
    socket.destroy()
  }
}
