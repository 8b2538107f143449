import type { ServerResponse } from 'node:http'
import type { Dispatcher } from 'undici'
import { awaitReader, breakOff } from './browser.ts'
import type { Call } from './call.ts'
import { type AnswerHeaders, writeAnswerHead } from './response-headers.ts'

export interface RelayOptions {
  call: Call
  controller: Dispatcher.DispatchController
  status: number
  headers: AnswerHeaders
  readerTimeoutMs: number
  /** As `relayedHeaders` gives them. */
  protection: readonly string[]
}

/** Up to here a body is copied into a text for less than that saves. */
const SHORT_BYTES = 8 * 1024

/** Answers whose head may have to go alone; one immediate for all that came in one turn. */
const HEADS: Relay[] = []

function sendHeads(): void {
  for (const relay of HEADS.splice(0)) relay.sendHead()
}

function endResponse(response: ServerResponse): void {
  response.end()
}

/** An answer on its way to the browser, at the browser's pace. */
export class Relay {
  private readonly options: RelayOptions
  private begun = false
  private over = false

  /** Writes the head. */
  constructor(options: RelayOptions) {
    this.options = options
    const { call, status, headers, protection } = options
    writeAnswerHead(call.response, status, headers, call.requestId, protection)
  }

  write(chunk: Buffer): void {
    const { call, controller, headers, readerTimeoutMs } = this.options
    const { response } = call
    const waitsAlready = response.writableNeedDrain
    const whole = !this.begun && Number(headers['content-length']) === chunk.length
    this.begun = true
    // One text with the head costs the connection half of what a text and a buffer do.
    const short = whole && chunk.length <= SHORT_BYTES
    if (short ? response.write(chunk.toString('latin1'), 'latin1') : response.write(chunk)) return
    controller.pause()
    if (!waitsAlready) awaitReader(response, readerTimeoutMs, () => controller.resume())
  }

  end(): void {
    this.over = true
    const { call, headers } = this.options
    // In the turn of the last part Node would write an empty text after it, and with it a list of two. A
    // body in chunks has an end to be written, which goes with its last part.
    const hasLength = headers['content-length'] !== undefined
    if (this.begun && hasLength) process.nextTick(endResponse, call.response)
    else call.response.end()
  }

  /** The rest will not come: the browser must notice. */
  cut(): void {
    this.over = true
    const { call, headers } = this.options
    breakOff(call, headers['content-length'] !== undefined)
  }

  /**
   * Node sends the head with the first part of the body. Where that does not follow at once, the head
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
