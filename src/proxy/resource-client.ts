import type { IncomingHttpHeaders } from 'node:http'
import type { Readable } from 'node:stream'
import type { Dispatcher } from 'undici'
import type { EgressProxy } from '../config/egress.ts'
import type { FixedHeader, TokenShape } from '../config/upstream.ts'
import { closeSlowly } from '../http/connections.ts'
import { relayedHeaders } from '../http/headers.ts'
import { prefixOf } from '../paths.ts'
import { afterReading } from '../timeout.ts'
import { fixedHeaders, headersToSend } from './headers.ts'
import { challengeNamesInsufficientScope, challengeNamesInvalidToken } from './invalid-token.ts'
import type { Call, OutgoingRequest } from './outgoing-request.ts'
import { Refusal, type Verdict } from './refusal.ts'
import { Relay } from './relay.ts'
import {
  type Failure,
  failureOf,
  hasNoBody,
  isLostConnection,
  ruleFor,
  untypedBody,
} from './response-rules.ts'
import { uploadOf } from './upload.ts'
import { type Connection, Connections, type Share, type Sharer, Shares } from './upstream-connections.ts'

/** The end of a call. All but the first three leave the browser's response untouched. */
export type Outcome =
  /** The response was relayed and handed to the browser's connection. */
  | { kind: 'finished'; status: number }
  /** The browser went away, or stopped reading; the request upstream was ended. */
  | { kind: 'client_gone' }
  /** The response broke off half-way, and the browser's connection with it. */
  | { kind: 'cut'; status: number }
  /** The browser has stopped sending its upload; the request upstream was ended. */
  | { kind: 'stalled' }
  /** The call has waited too long for others of its holder; nothing was sent. */
  | { kind: 'crowded' }
  /** The updates of its holder that wait keep too many bytes; nothing was sent. */
  | { kind: 'full' }
  /** The access token was refused: any 401, or a 400 or 403 whose head or body says so. */
  | { kind: 'token_refused'; namesInvalidToken: boolean; status: number }
  /** Nothing was sent: the store could not show that the session goes on with this token. `error`: why it could not be asked. */
  | { kind: 'withdrawn'; error: unknown }
  | Failure

export interface ResourceClientOptions {
  /** May have a path prefix; no trailing slash. */
  baseUrl: string
  /** null: straight to the resource server. */
  proxy?: EgressProxy | null
  /**
   * Limits each of: the wait for a share, for a connection, for the response's head, between two parts of its body, and
   * for the part of an error's body that is searched.
   */
  timeoutMs: number
  /** `query`: `access_token` is appended to the query, and no `Authorization` is sent. */
  tokenIn: 'header' | 'query'
  /** Calls say that they came through this server. */
  via?: boolean
  /** Sent with each call. */
  headers?: readonly FixedHeader[]
  /** Further shapes of the invalid-token response. */
  tokenShapes?: readonly TokenShape[]
  /** Browsers use https. */
  secure: boolean
  /** Where browsers find what a `Location` of the resource server names; null: nowhere. */
  ownPathOf?: (location: string) => string | null
  /** Connections at most, for reads, and again for all that is sent over a connection of its own. */
  connections?: number
  /** How long a connection is used for reads, however busy it is: then a change of the server's address is seen. */
  keptForMs?: number
  /** Reads at once for one holder, and again updates; further ones wait for it as for a connection. */
  share?: number
  /**
   * A read that has waited so long for its share takes the place of one that came as long before it and has no response yet:
   * its browser may have left, which some reverse proxies hide. That one waits again, once. One of a holder in so long. null: no
   * read does.
   */
  overtakeMs?: number | null
  /** A browser that takes less than 64 KiB of a waiting response in so long counts as gone. */
  readerTimeoutMs?: number
  /** Called for each challenge, and for each body of a 403, that says that the token's scope does not suffice. */
  onInsufficientScope?: (() => void) | undefined
}

/** A client of the resource server, for every operation. */
export interface ResourceClient {
  /**
   * Sends one request and relays its response. `onOutcome` is called once. If nothing was written, the
   * browser's response may then be used for another call or for a problem.
   */
  send(call: Call, onOutcome: (outcome: Outcome) => void): void
  /** Waits for the open calls, then closes the connections. */
  close(): Promise<void>
}

export function createResourceClient(options: ResourceClientOptions): ResourceClient {
  const {
    timeoutMs,
    tokenIn,
    proxy = null,
    connections = 128,
    keptForMs = 300_000,
    share = 32,
    overtakeMs = null,
    readerTimeoutMs = 60_000,
  } = options
  const base = new URL(options.baseUrl)
  const places = (kept: boolean, part = 1): Places => ({
    connections: new Connections({
      ...{ origin: base.origin, proxy, timeoutMs, kept, keptForMs },
      most: Math.ceil(connections * part),
    }),
    waiting: new Set(),
    shares: new Shares(Math.ceil(share * part), kept ? Number.POSITIVE_INFINITY : MOST_WAITING_BYTES),
  })
  let open = 0
  let whenIdle: (() => void) | null = null
  const [kept, fresh, uploads] = [places(true), places(false), places(false, UPLOADS_PART)]
  const shared: Shared = {
    ...{ kept, fresh, uploads, all: [kept, fresh, uploads] },
    prefix: prefixOf(base),
    tokenIn,
    via: options.via ?? true,
    fixedHeaders: fixedHeaders(options.headers ?? []),
    tokenShapes: options.tokenShapes ?? [],
    timeoutMs,
    overtakeMs,
    readerTimeoutMs,
    securityHeaders: relayedHeaders(options.secure),
    onInsufficientScope: options.onInsufficientScope ?? (() => {}),
    ownPathOf: options.ownPathOf ?? (() => null),
    onEnd() {
      open -= 1
      if (open === 0) whenIdle?.()
    },
  }

  return {
    send(call, onOutcome) {
      if (isGone(call)) return onOutcome({ kind: 'client_gone' })
      open += 1
      new UpstreamRequest(call, shared, onOutcome).send()
    },
    async close() {
      if (open > 0) await new Promise<void>((resolve) => (whenIdle = resolve))
      await Promise.all(shared.all.map(({ connections }) => connections.destroy()))
    },
  }
}

/** The same for every request of one resource server. */
interface Shared {
  kept: Places
  fresh: Places
  /** A browser may take hours for one: it must not wait where updates do. */
  uploads: Places
  all: readonly Places[]
  /** The path of the base URL. */
  prefix: string
  tokenIn: 'header' | 'query'
  via: boolean
  /** Names and values in turn. */
  fixedHeaders: readonly string[]
  tokenShapes: readonly TokenShape[]
  timeoutMs: number
  overtakeMs: number | null
  readerTimeoutMs: number
  /** Names and values in turn, from http/headers.ts. */
  securityHeaders: readonly string[]
  onInsufficientScope: () => void
  ownPathOf: (location: string) => string | null
  /** A call is over, and its outcome comes next. */
  onEnd: () => void
}

/** Connections of one kind. A request waits here for one and not in undici, which would write it without asking again. */
interface Places {
  readonly connections: Connections
  /** In the order of their arrival. */
  readonly waiting: Set<UpstreamRequest>
  readonly shares: Shares
}

type Phase =
  | 'waiting' // nothing of the response is here
  | 'inspecting' // a 400, 401 or 403 is held back until its error code is known
  | 'untyped' // held back until it is known whether there is a body
  | 'relaying' // the head is written
  | 'ended' // everything is written, the browser has not taken it all
  | 'over' // the outcome is given; what still comes is dropped

/** Of the connections and of a holder's share. */
const UPLOADS_PART = 1 / 4
/** Of the updates of one holder. */
const MOST_WAITING_BYTES = 16 * 1024 * 1024
/** What a call that waits takes besides its body: its connection, the parsed head, the objects of the framework. */
const BYTES_OF_CALL = 16 * 1024

/** A rejected response up to this size is read to its end, if that comes soon: its connection can then be used again. */
const DRAINED_BYTES = 64 * 1024
const DRAINED_WITHIN_MS = 1_000

/** The head of a response. */
interface Head {
  readonly status: number
  readonly headers: IncomingHttpHeaders
}

const NOTHING: readonly Buffer[] = []
const NO_HEAD: Head = { status: 0, headers: {} }

function noTimer(): void {}

const GONE = new Error('this call is over')
const UNWANTED = new Error('the rest of a rejected response is not wanted')
const OVERTAKEN = new Error('a younger call of its holder has the place of this one')

/**
 * One request to the resource server and its response. undici calls the `on…` methods. A class and no set
 * of closures, because one is made for each request on the hot path.
 */
class UpstreamRequest implements Dispatcher.DispatchHandler, Sharer {
  private readonly call: Call
  private readonly shared: Shared
  private readonly onOutcome: (outcome: Outcome) => void
  private readonly options: Dispatcher.DispatchOptions
  private places: Places | null = null
  /** The one that it uses or has used. */
  private connection: Connection | null = null
  private dispatched = false
  private phase: Phase = 'waiting'
  private controller: Dispatcher.DispatchController | null = null
  private head = NO_HEAD
  private refusal: Refusal | null = null
  private relay: Relay | null = null
  /** Bytes of a rejected response. */
  private drained = 0
  private responseStarted = false
  private repeated = false
  private readonly own: Places
  private readonly share: Share
  private started = false
  readonly cameAt = performance.now()
  /** The one that gets its place. */
  private heir: Sharer | null = null
  private gaveWay = false
  /** It has waited for a share or a place, so its session may have ended since. */
  private waited = false
  readonly keptBytes: number
  private stopTimer = noTimer
  private readonly onClose = () => this.browserClosed()

  constructor(call: Call, shared: Shared, onOutcome: (outcome: Outcome) => void) {
    this.call = call
    this.shared = shared
    this.onOutcome = onOutcome
    // An update must not be sent twice. If the peer closed a kept connection just then, it would be unknown whether the
    // update arrived, so each update gets a new connection.
    const { fresh, uploads } = shared
    const isUpload = call.outgoing.uploadLength !== null
    this.own = isRepeatable(call.outgoing) ? shared.kept : isUpload ? uploads : fresh
    this.share = this.own.shares.of(call.holder)
    const { outgoing, request, authorization, traceparent, requestId } = call
    const { method, accept, contentType, body, uploadLength } = outgoing
    this.keptBytes = BYTES_OF_CALL + (body?.length ?? 0)
    const inHeader = shared.tokenIn === 'header'
    this.options = {
      path: shared.prefix + (inHeader ? outgoing.path : withToken(outgoing.path, authorization)),
      method,
      headers: headersToSend(request, {
        method,
        accept,
        contentType,
        contentLength: uploadLength,
        authorization: inHeader ? authorization : null,
        traceparent,
        requestId,
        via: shared.via,
        fixed: shared.fixedHeaders,
      }),
      body,
    }
  }

  send(): void {
    this.call.response.on('close', this.onClose)
    this.enterShare()
  }

  private enterShare(): void {
    const entered = this.own.shares.enter(this.share, this)
    if (entered === 'started') return
    this.waited = true
    if (entered === 'full') this.finish({ kind: 'full' })
    else this.awaitShare()
  }

  private awaitShare(): void {
    const { timeoutMs, overtakeMs } = this.shared
    if (overtakeMs === null || this.gaveWay || !isRepeatable(this.call.outgoing)) {
      this.stopTimer = afterReading(timeoutMs, () => this.finish({ kind: 'crowded' }))
      return
    }
    let leftMs = timeoutMs
    const wait = (): void => {
      const ms = Math.min(leftMs, overtakeMs)
      leftMs -= ms
      this.stopTimer = afterReading(ms, tryAgain)
    }
    const tryAgain = (): void => {
      if (leftMs === 0) {
        this.finish({ kind: 'crowded' })
        return
      }
      // Before it starts, which ends the wait.
      wait()
      this.own.shares.overtake(this.share, this, overtakeMs)
    }
    wait()
  }

  giveWay(heir: Sharer): boolean {
    const { controller, phase } = this
    if (controller === null || phase !== 'waiting' || this.responseStarted || this.heir !== null) return false
    this.heir = heir
    controller.abort(OVERTAKEN)
    return true
  }

  /** Its connection is closed. The second time it is refused: its holder has too many calls. */
  private waitAgain(): void {
    const { heir, share, own } = this
    this.controller = null
    if (this.gaveWay) {
      this.finish({ kind: 'crowded' })
      return
    }
    this.gaveWay = true
    this.started = false
    this.heir = null
    own.shares.leave(share, this, heir)
    this.enterShare()
  }

  /** Sends a call that has its place in the share of its holder. */
  start(): void {
    this.stopTimer()
    this.started = true
    this.enter(this.own)
  }

  private enter(places: Places): void {
    const connection = places.connections.take()
    if (connection === null) {
      this.waited = true
      places.waiting.add(this)
      this.limitWait()
    } else {
      this.takePlace(places, connection)
    }
  }

  takePlace(places: Places, connection: Connection): void {
    this.stopTimer()
    this.places = places
    this.connection = connection
    const asked = this.waited ? this.ask() : null
    if (asked === null) this.dispatch(connection)
    else
      void asked.then(() => {
        // A call that is over has given its place away.
        if (this.phase !== 'over') this.dispatch(connection)
      })
  }

  /** Gives its place to the next request that still wants one. */
  private leave(failed = false): void {
    const { places, connection } = this
    if (places === null || connection === null) return
    this.places = null
    this.dispatched = false
    this.stopTimer()
    connection.release(failed)
    passOn(places, connection)
    this.leaveShare()
  }

  /** A call counts as long as it has a connection, so that rejected responses cannot take all of them. */
  private leaveShare(): void {
    if (!this.started || this.phase !== 'over' || this.places !== null) return
    this.started = false
    this.own.shares.leave(this.share, this, this.heir)
  }

  /** Asks the store after a wait unless the session was proven recently. The call is over where it must not leave. */
  private ask(): Promise<void> | null {
    if (this.phase === 'over' || this.call.isProven()) return null
    const end = (error: unknown): void => {
      if (this.phase !== 'over') this.finish({ kind: 'withdrawn', error })
    }
    return this.call.prove().then((goesOn) => {
      if (!goesOn) end(null)
    }, end)
  }

  onConnected(): Promise<void> | null {
    return this.ask()
  }

  private dispatch(connection: Connection): void {
    this.dispatched = true
    if (this.call.outgoing.uploadLength !== null) this.options.body = this.upload()
    connection.send(this.options, this)
    // It may still be busy with the end of another response.
    if (this.waited && this.controller === null && this.phase === 'waiting') this.limitWait()
  }

  private upload(): Readable {
    return uploadOf(this.call.request, this.shared.readerTimeoutMs, () => {
      if (this.phase !== 'waiting') return
      this.finish({ kind: 'stalled' })
      this.controller?.abort(GONE)
    })
  }

  /** undici does not limit how long a request waits for one of its connections. */
  private limitWait(): void {
    this.stopTimer = afterReading(this.shared.timeoutMs, () => this.finish({ kind: 'timeout' }))
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // Throwing here withdraws the request before it is written and leaves the connection alone.
    if (this.phase === 'over') throw GONE
    this.stopTimer()
    this.controller = controller
  }

  onResponseStarted(): void {
    this.responseStarted = true
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200) return
    if (this.phase !== 'waiting') return
    this.head = { status, headers }
    if (status === 401 || status === 400 || status === 403) this.holdErrorResponse()
    else this.applyRules()
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    switch (this.phase) {
      case 'relaying':
        this.relay?.write(chunk)
        break
      case 'inspecting':
        this.refusal?.add(chunk)
        break
      case 'untyped':
        this.finish(untypedBody(this.head.status, this.head.headers))
        break
      default:
        this.drained += chunk.length
        if (this.drained > DRAINED_BYTES) controller.abort(UNWANTED)
    }
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    if (this.connection!.broken && endsWithConnection(this.head)) {
      this.onResponseError(controller, new Error('the connection broke before the end of the response'))
      return
    }
    this.leave()
    if (this.phase === 'relaying') this.endRelay()
    else if (this.phase === 'inspecting') this.refusal?.end()
    else if (this.phase === 'untyped') this.startRelay([], true)
  }

  /** The end of what was dispatched. */
  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    // Another call may use the connection once this one has left it.
    const mayRepeat = this.maySendAgain(error)
    this.leave(true)
    switch (this.phase) {
      case 'waiting':
        if (this.heir !== null) {
          this.waitAgain()
        } else if (mayRepeat) {
          this.repeated = true
          this.controller = null
          this.enter(this.shared.fresh)
        } else {
          this.finish(failureOf(error))
        }
        break
      case 'inspecting':
        this.refusal?.breakOff(failureOf(error))
        break
      case 'untyped':
        this.finish(failureOf(error))
        break
      case 'relaying':
        this.cutRelay()
        break
      case 'ended':
      case 'over':
    }
  }

  /** RFC 9112 section 9.3.1: the peer may close a connection that waits just as it is used. */
  private maySendAgain(error: Error): boolean {
    const wasClosed = this.connection!.wasOpen && !this.responseStarted && isLostConnection(error)
    return isRepeatable(this.call.outgoing) && wasClosed && !this.repeated
  }

  private holdErrorResponse(): void {
    const { status, headers } = this.head
    const challenge = headers['www-authenticate']
    if (challengeNamesInvalidToken(challenge)) {
      this.finish({ kind: 'token_refused', namesInvalidToken: true, status })
      return
    }
    if (challengeNamesInsufficientScope(challenge)) this.shared.onInsufficientScope()
    this.phase = 'inspecting'
    this.refusal = new Refusal({
      status,
      headers,
      shapes: this.shared.tokenShapes,
      timeoutMs: this.shared.timeoutMs,
      pause: () => this.controller?.pause(),
      onVerdict: (verdict) => this.judged(verdict),
    })
  }

  private judged(verdict: Verdict): void {
    switch (verdict.kind) {
      case 'token_refused':
        this.finish({ ...verdict, status: this.head.status })
        break
      case 'failed':
        if (this.phase === 'inspecting') this.finish(failureOf(verdict.error))
        this.controller?.abort(verdict.error)
        return
      case 'other':
        if (verdict.namesInsufficientScope) this.shared.onInsufficientScope()
        this.applyRules()
        if (this.refusal?.failure) this.breakRelay(this.refusal.failure)
    }
    this.refusal = null
    if (!this.call.response.writableNeedDrain) this.controller?.resume()
  }

  /** As for any other status, what has come is relayed and the response cut off. */
  private breakRelay(failure: Failure): void {
    if (this.isIn('untyped')) this.finish(failure)
    // Node writes what it has after this turn.
    else if (this.isIn('relaying')) setImmediate(() => this.cutRelay())
  }

  private cutRelay(): void {
    if (!this.isIn('relaying')) return
    this.finish({ kind: 'cut', status: this.head.status })
    this.relay?.cut()
  }

  /** A comparison would make the compiler believe that no call changes the phase. */
  private isIn(phase: Phase): boolean {
    return this.phase === phase
  }

  private applyRules(): void {
    const { status, headers } = this.head
    const { held = NOTHING, isComplete = false } = this.refusal ?? {}
    const rule = ruleFor(status, headers, this.call.outgoing)
    if (rule === 'relay') this.startRelay(held, isComplete)
    else if (rule !== 'relay_if_empty') this.finish(rule)
    else if (held.length > 0) this.finish(untypedBody(status, headers))
    else if (isComplete) this.startRelay(held, isComplete)
    else this.phase = 'untyped'
  }

  /** `held`: what has come of the body already; `isComplete`: that is all of it. */
  private startRelay(held: readonly Buffer[], isComplete: boolean): void {
    const { call, head, controller } = this
    const { readerTimeoutMs, securityHeaders, ownPathOf } = this.shared
    if (controller === null) return
    endUnread(call)
    const relay = new Relay({ call, controller, ...head, readerTimeoutMs, securityHeaders, ownPathOf })
    this.relay = relay
    this.phase = 'relaying'
    for (const chunk of held) relay.write(chunk)
    // Not only at the end of the response: a 304 may name the length of a body that it does not have, which
    // undici reports as a broken response.
    if (isComplete || hasNoBody(call.outgoing.method, head.status)) this.endRelay()
    else if (held.length === 0) relay.sendHeadSoon()
  }

  private endRelay(): void {
    this.phase = 'ended'
    this.relay?.end()
  }

  private browserClosed(): void {
    const { phase } = this
    const { response } = this.call
    if (phase === 'over') return
    // Node takes the response back from the connection once all of it is handed over.
    if (phase === 'ended' && response.writableFinished && response.socket === null) {
      this.finish({ kind: 'finished', status: this.head.status })
    } else {
      this.finish({ kind: 'client_gone' })
      this.controller?.abort(GONE)
    }
  }

  private finish(outcome: Outcome): void {
    this.phase = 'over'
    this.refusal?.stop()
    const { response, outgoing } = this.call
    // undici destroys only a body that it has begun to send, and one that nobody reads would hold the browser's.
    if (outgoing.uploadLength !== null) (this.options.body as Readable | null)?.destroy()
    endUnread(this.call)
    this.stopTimer()
    // After its `close` a response goes away with its listeners; removing one is expensive.
    if (!response.closed) response.off('close', this.onClose)
    if (this.waited) {
      this.own.shares.forget(this.share, this)
      // While all connections are busy, nothing else would forget it.
      for (const { waiting } of this.shared.all) waiting.delete(this)
    }
    // What was dispatched keeps its place until undici is done with it.
    if (this.dispatched)
      this.stopTimer = afterReading(DRAINED_WITHIN_MS, () => this.controller?.abort(UNWANTED))
    else this.leave()
    this.leaveShare()
    this.shared.onEnd()
    this.onOutcome(outcome)
  }
}

/** To the request that has waited longest, if there is one. */
function passOn(places: Places, connection: Connection): void {
  const { connections, waiting } = places
  if (waiting.size === 0) {
    connections.giveBack(connection)
    return
  }
  const next = waiting.values().next().value!
  waiting.delete(next)
  next.takePlace(places, connection)
}

/** The browser may still send an upload that nobody wants: the response ends the connection, slowly. */
function endUnread({ request, response, outgoing }: Pick<Call, 'request' | 'response' | 'outgoing'>): void {
  if (outgoing.uploadLength === null || request.complete) return
  response.shouldKeepAlive = false
  closeSlowly(request.socket)
  request.resume()
}

/** Whether the browser has left. */
function isGone({ request, response }: Call): boolean {
  return response.closed || response.destroyed || request.socket.destroyed
}

/** undici knows the end of any other response, whatever becomes of the connection (RFC 9112 section 6.3). */
function endsWithConnection({ status, headers }: Head): boolean {
  const isChunked = /\bchunked\s*$/i.test(headers['transfer-encoding'] ?? '')
  return !isChunked && headers['content-length'] === undefined && status !== 204 && status !== 304
}

function isRepeatable({ method }: OutgoingRequest): boolean {
  return method === 'GET' || method === 'HEAD'
}

function withToken(path: string, authorization: string): string {
  const token = encodeURIComponent(authorization.slice('Bearer '.length))
  return `${path}${path.includes('?') ? '&' : '?'}access_token=${token}`
}
