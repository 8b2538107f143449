/** A call that waits until one of the same holder ends. */
interface Waiting {
  /** What it keeps in memory meanwhile. */
  readonly keptBytes: number
  start(): void
}

/** One holder's part of the connections. */
export interface Share {
  open: number
  /** In the order of their arrival. */
  readonly waiting: Set<Waiting>
  /** Of those that wait. */
  waitingBytes: number
}

/** Above so many holders those without a call are forgotten. */
const MAX_HOLDERS = 50_000

/**
 * Divides connections between holders (sessions, client addresses), so that one cannot take all of them. No share is
 * removed when its last call ends: a table that changes with each request costs more than the call (decision 0008).
 */
export class Shares {
  /** Calls at once for one holder. */
  private readonly most: number
  /** Of the waiting calls of a holder: further ones are refused at once. */
  private readonly mostBytes: number
  private readonly shares = new Map<string, Share>()

  constructor(most: number, mostBytes = Number.POSITIVE_INFINITY) {
    this.most = most
    this.mostBytes = mostBytes
  }

  of(holder: string): Share {
    const known = this.shares.get(holder)
    if (known !== undefined) return known
    if (this.shares.size >= MAX_HOLDERS) this.forgetIdle()
    const share = { open: 0, waiting: new Set<Waiting>(), waitingBytes: 0 }
    this.shares.set(holder, share)
    return share
  }

  /** Starts the call now, or when one of the same holder leaves; `full`: too many wait already. */
  enter(share: Share, call: Waiting): 'started' | 'waits' | 'full' {
    if (share.open >= this.most) {
      if (share.waitingBytes + call.keptBytes > this.mostBytes) return 'full'
      share.waiting.add(call)
      share.waitingBytes += call.keptBytes
      return 'waits'
    }
    share.open += 1
    call.start()
    return 'started'
  }

  /** A call that was started has ended: the one that has waited longest starts. */
  leave(share: Share): void {
    if (share.waiting.size === 0) {
      share.open -= 1
      return
    }
    const next = share.waiting.values().next().value!
    this.forget(share, next)
    next.start()
  }

  /** A call that may wait wants to start no more. */
  forget(share: Share, call: Waiting): void {
    if (share.waiting.delete(call)) share.waitingBytes -= call.keptBytes
  }

  private forgetIdle(): void {
    for (const [holder, { open }] of this.shares) if (open === 0) this.shares.delete(holder)
  }
}
