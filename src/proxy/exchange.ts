import type { Dispatcher } from 'undici'
import { wasDelivered } from './browser.ts'
import type { Call, Outcome } from './call.ts'
import { failureOutcome, isLostConnection, refusalOutcome } from './failures.ts'
import { beginningNamesInvalidToken, challengeNamesInvalidToken, INSPECTED_BYTES } from './invalid-token.ts'
import { Relay } from './relay.ts'
import type { AnswerHeaders } from './response-headers.ts'
import { hasNoBody, judgeAnswer } from './response-rules.ts'
import type { Connection, Upstream, UpstreamRequest } from './upstream.ts'

type Phase =
  | 'waiting' // nothing of the answer is here
  | 'inspecting' // a 400, 401 or 403 is held back until its error code is known
  | 'untyped' // held back until it is known whether there is a body
  | 'relaying' // the head is written
  | 'ended' // everything is written, the browser has not taken it all
  | 'over' // the outcome is given; what still comes is dropped

/** A refused answer up to this size is read to its end, so that its connection can be used again. */
const DROPPED_BYTES = 64 * 1024

const NOTHING: Buffer[] = []

const GONE = new Error('the browser went away')
const DROPPED = new Error('the rest of a refused answer is not wanted')

/** The same for every call. */
export interface ExchangeTerms {
  upstream: Upstream
  timeoutMs: number
  readerTimeoutMs: number
  /** As `relayedHeaders` gives them. */
  protection: readonly string[]
}

/**
 * One call to the resource server and its answer: undici calls the methods, `settle` is called once.
 * A class and no set of closures, because one is made for each request on the hot path.
 */
export class Exchange implements Dispatcher.DispatchHandler {
  connection: Connection = { answered: false, broken: false }

  private readonly call: Call
  private readonly terms: ExchangeTerms
  private readonly settle: (outcome: Outcome) => void
  private readonly request: UpstreamRequest
  private phase: Phase = 'waiting'
  private controller: Dispatcher.DispatchController | null = null
  private status = 0
  private headers: AnswerHeaders = {}
  private bytes = 0
  private held: Buffer[] = NOTHING
  private complete = false
  private relaying: Relay | null = null
  private begun = false
  private repeated = false
  private pipelined = false
  private closed = false
  private timer: NodeJS.Timeout | undefined
  private readonly onClose = () => this.browserClosed()

  constructor(
    call: Call,
    path: string,
    headers: string[],
    terms: ExchangeTerms,
    settle: (outcome: Outcome) => void,
  ) {
    this.call = call
    this.terms = terms
    this.settle = settle
    this.request = { path, method: call.method, headers, body: call.body, exchange: this }
  }

  start(): void {
    const { call } = this
    const { request, response } = call
    const { upstream } = this.terms
    response.on('close', this.onClose)
    if (response.socket === null) {
      // A pipelined response that still waits for its turn is not told when its connection ends.
      this.pipelined = true
      request.socket.setMaxListeners(0).once('close', this.onClose)
    }
    // Updates go out on a connection of their own: they must not be sent twice, and on a kept one that
    // was just closed at the far end there is no telling whether they arrived.
    const repeatable = call.method === 'GET' || call.method === 'HEAD'
    this.dispatch(repeatable ? upstream.kept : upstream.fresh)
  }

  private dispatch(pool: Dispatcher): void {
    const accepted = pool.dispatch(this.request, this)
    // undici does not bound the time that a request waits for one of its connections.
    if (!accepted && this.controller === null && this.phase === 'waiting') {
      this.timer = setTimeout(() => this.give({ kind: 'timeout' }), this.terms.timeoutMs)
    }
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // Thrown here, it takes the request back before it is written and leaves the connection alone.
    if (this.phase === 'over') throw GONE
    clearTimeout(this.timer)
    this.controller = controller
  }

  onResponseStarted(): void {
    this.begun = true
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: AnswerHeaders): void {
    if (status < 200) return
    this.connection.answered = true
    if (this.phase !== 'waiting') return
    this.status = status
    this.headers = headers
    if (status === 401 || status === 400 || status === 403) this.inspect()
    else this.judge()
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.bytes += chunk.length
    switch (this.phase) {
      case 'relaying':
        this.relaying?.write(chunk)
        break
      case 'inspecting':
        this.held.push(chunk)
        if (this.bytes >= INSPECTED_BYTES) {
          controller.pause()
          this.decide()
        }
        break
      case 'untyped':
        this.refuse('body without a type')
        break
      default:
        if (this.bytes > DROPPED_BYTES) controller.abort(DROPPED)
    }
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    if (this.connection.broken) {
      this.onResponseError(controller, new Error('the connection broke before the end of the answer'))
      return
    }
    this.complete = true
    if (this.phase === 'relaying') this.end()
    else if (this.phase === 'inspecting') this.decide()
    else if (this.phase === 'untyped') this.relay()
  }

  onResponseError(_: Dispatcher.DispatchController | null, error: Error): void {
    switch (this.phase) {
      case 'waiting':
        if (this.maySendAgain(error)) {
          this.repeated = true
          this.controller = null
          this.dispatch(this.terms.upstream.fresh)
        } else {
          this.give(failureOutcome(error))
        }
        break
      case 'inspecting':
      case 'untyped':
        if (this.status === 401) this.giveInvalidToken(false)
        else this.give(failureOutcome(error))
        break
      case 'relaying':
        this.give({ kind: 'cut', status: this.status })
        this.relaying?.cut()
        break
      case 'ended':
      case 'over':
    }
  }

  /** RFC 9112 section 9.3.1: a kept connection may be closed at the far end just as it is used again. */
  private maySendAgain(error: Error): boolean {
    const { method } = this.call
    const repeatable = method === 'GET' || method === 'HEAD'
    const stale = this.connection.answered && !this.begun && isLostConnection(error)
    return repeatable && stale && !this.repeated
  }

  private inspect(): void {
    const { status, headers } = this
    if (challengeNamesInvalidToken(headers['www-authenticate'])) {
      this.giveInvalidToken(true)
      return
    }
    this.phase = 'inspecting'
    this.held = []
    this.timer = setTimeout(() => {
      if (status === 401) this.giveInvalidToken(false)
      else this.give({ kind: 'timeout' })
      this.controller?.abort(DROPPED)
    }, this.terms.timeoutMs)
  }

  /** Called once, with the whole body or its beginning in `held`. */
  private decide(): void {
    beginningNamesInvalidToken(this.held, this.headers['content-encoding'])
      .then((named) => this.decided(named))
      .catch((error: Error) => {
        this.onResponseError(null, error)
        this.controller?.abort(error)
      })
  }

  private decided(named: boolean): void {
    if (this.phase !== 'inspecting') return
    if (named || this.status === 401) this.giveInvalidToken(named)
    else this.judge()
    if (!this.call.response.writableNeedDrain) this.controller?.resume()
  }

  private giveInvalidToken(named: boolean): void {
    this.give({ kind: 'invalid_token', named, status: this.status })
  }

  private judge(): void {
    clearTimeout(this.timer)
    const { status, headers } = this
    const { method, jsonp } = this.call
    const verdict = judgeAnswer({ status, headers, method, jsonp })
    if (verdict.kind === 'refuse') this.refuse(verdict.reason)
    else if (verdict.kind === 'relay' || (this.complete && this.held.length === 0)) this.relay()
    else if (this.held.length > 0) this.refuse('body without a type')
    else this.phase = 'untyped'
  }

  private refuse(reason: string): void {
    this.give(refusalOutcome(this.status, this.headers, reason))
  }

  private relay(): void {
    const { status, headers, controller, held } = this
    const { call } = this
    const { readerTimeoutMs, protection } = this.terms
    if (controller === null) return
    const relay = new Relay({ call, controller, status, headers, readerTimeoutMs, protection })
    this.relaying = relay
    this.phase = 'relaying'
    for (const chunk of held) relay.write(chunk)
    // Not only at the end of the answer: a 304 may name the length of a body that it does not have, which
    // undici takes for a broken answer.
    if (this.complete || hasNoBody(call.method, status)) this.end()
    else if (held.length === 0) relay.sendHeadSoon()
    this.held = NOTHING
  }

  private end(): void {
    this.phase = 'ended'
    this.relaying?.end()
  }

  private browserClosed(): void {
    const { phase, status, bytes } = this
    this.closed = true
    if (phase === 'over') return
    if (phase === 'ended' && wasDelivered(this.call.response)) {
      this.give({ kind: 'finished', status, bytes })
    } else {
      this.give({ kind: 'client_gone' })
      this.controller?.abort(GONE)
    }
  }

  private give(outcome: Outcome): void {
    this.phase = 'over'
    this.held = NOTHING
    clearTimeout(this.timer)
    // After its `close` a response goes away with its listeners; taking one off is dear.
    if (!this.closed) this.call.response.off('close', this.onClose)
    if (this.pipelined) this.call.request.socket.off('close', this.onClose)
    this.settle(outcome)
  }
}
