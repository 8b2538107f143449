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
  /** As `protectiveFields` gives them. */
  protection: readonly string[]
}

/** Answers whose head may have to go alone; one immediate for all that came in one turn. */
const HEADS: Relay[] = []

function sendHeads(): void {
  for (const relay of HEADS.splice(0)) relay.sendHead()
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
    const { call, controller, readerTimeoutMs } = this.options
    const { response } = call
    const waitsAlready = response.writableNeedDrain
    this.begun = true
    if (response.write(chunk)) return
    controller.pause()
    if (!waitsAlready) awaitReader(response, readerTimeoutMs, () => controller.resume())
  }

  end(): void {
    this.over = true
    this.options.call.response.end()
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
