/** A call that waits until one of the same holder ends. */
interface Waiting {
  start(): void
}

/** One holder's part of the connections. */
export interface Share {
  open: number
  /** In the order of their arrival. */
  readonly waiting: Set<Waiting>
}

/** Above so many holders those without a call are forgotten. */
const MAX_HOLDERS = 50_000

/**
 * Divides connections between holders (sessions, client addresses), so that the reads of one cannot take all of them. No share is
 * removed when its last call ends: a table that changes with each request costs more than the call (decision 0008).
 */
export class Shares {
  /** Calls at once for one holder. */
  private readonly most: number
  private readonly shares = new Map<string, Share>()

  constructor(most: number) {
    this.most = most
  }

  of(holder: string): Share {
    const known = this.shares.get(holder)
    if (known !== undefined) return known
    if (this.shares.size >= MAX_HOLDERS) this.forgetIdle()
    const share = { open: 0, waiting: new Set<Waiting>() }
    this.shares.set(holder, share)
    return share
  }

  /** Starts the call now, or when one of the same holder leaves; `false`: it waits. */
  enter(share: Share, call: Waiting): boolean {
    if (share.open >= this.most) {
      share.waiting.add(call)
      return false
    }
    share.open += 1
    call.start()
    return true
  }

  /** A call that was started has ended: the one that has waited longest starts. */
  leave(share: Share): void {
    if (share.waiting.size === 0) {
      share.open -= 1
      return
    }
    const next = share.waiting.values().next().value!
    share.waiting.delete(next)
    next.start()
  }

  private forgetIdle(): void {
    for (const [holder, { open }] of this.shares) if (open === 0) this.shares.delete(holder)
  }
}
