import type { IncomingHttpHeaders } from 'node:http'
import type { TokenShape } from '../config/upstream.ts'
import { afterReading } from '../timeout.ts'
import { bodyNamesInsufficientScope, bodyNamesInvalidToken, INSPECTED_BYTES } from './invalid-token.ts'
import type { Failure } from './response-rules.ts'

/** What an error response turns out to be. */
export type Verdict =
  | { kind: 'token_refused'; namesInvalidToken: boolean }
  /** Another error, which is relayed. Only the body of a 403 is asked for the scope. */
  | { kind: 'other'; namesInsufficientScope: boolean }
  /** The search failed, or what followed from its verdict. */
  | { kind: 'failed'; error: Error }

interface RefusalOptions {
  status: number
  headers: IncomingHttpHeaders
  /** Further shapes of the invalid-token response. */
  shapes: readonly TokenShape[]
  /** However slow its rest is, the response is judged by then. */
  timeoutMs: number
  /** Enough of the body is here to be judged: the rest has to wait. */
  pause: () => void
  /** Called once, unless `stop` comes first; `failed` may follow. */
  onVerdict: (verdict: Verdict) => void
}

/** A response of status 400, 401 or 403, held back until it is known whether it refuses the access token. */
export class Refusal {
  /** What has come of the body. */
  readonly held: Buffer[] = []
  /** The body has ended. */
  isComplete = false
  /** How the response broke off; null if it did not. */
  failure: Failure | null = null
  private readonly options: RefusalOptions
  private readonly stopTimer: () => void
  private bytes = 0
  private searching = false
  private over = false

  constructor(options: RefusalOptions) {
    this.options = options
    this.stopTimer = afterReading(options.timeoutMs, () => this.endWait())
  }

  add(chunk: Buffer): void {
    this.held.push(chunk)
    this.bytes += chunk.length
    if (this.bytes >= INSPECTED_BYTES) this.searchBeginning()
  }

  end(): void {
    this.isComplete = true
    this.search()
  }

  /** What came before may still say that the token was refused. */
  breakOff(failure: Failure): void {
    this.failure = failure
    this.search()
  }

  stop(): void {
    this.over = true
    this.stopTimer()
  }

  private endWait(): void {
    // Then its verdict is near.
    if (this.searching) return
    if (this.options.status === 401) this.conclude({ kind: 'token_refused', namesInvalidToken: false })
    else this.searchBeginning()
  }

  private searchBeginning(): void {
    this.options.pause()
    this.search()
  }

  private search(): void {
    if (this.searching) return
    this.searching = true
    this.judge()
      .then((verdict) => this.conclude(verdict))
      .catch((error: Error) => this.options.onVerdict({ kind: 'failed', error }))
  }

  private async judge(): Promise<Verdict> {
    const { status, headers, shapes } = this.options
    const coding = headers['content-encoding']
    // The response to a HEAD may have the length of a body that does not come.
    const isWhole = this.isComplete && (this.held.length > 0 || Number(headers['content-length'] ?? 0) === 0)
    const ofStatus = shapes.filter((shape) => shape.status === status)
    const namesInvalidToken = await bodyNamesInvalidToken(this.held, coding, { shapes: ofStatus, isWhole })
    if (namesInvalidToken || status === 401) return { kind: 'token_refused', namesInvalidToken }
    const namesInsufficientScope = status === 403 && (await bodyNamesInsufficientScope(this.held, coding))
    return { kind: 'other', namesInsufficientScope }
  }

  private conclude(verdict: Verdict): void {
    if (this.over) return
    this.stop()
    this.options.onVerdict(verdict)
  }
}
