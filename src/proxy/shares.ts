/** A call of one holder. */
export interface Sharer {
  /** What it keeps in memory while it waits until another one ends. */
  readonly keptBytes: number
  /** When it came, by the monotonic clock. */
  readonly cameAt: number
  start(): void
  /** Gives its place to this one as soon as its connection allows. false: it keeps its place. */
  giveWay(heir: Sharer): boolean
}

/** One holder's part of the connections. */
export interface Share {
  /** In the order of their start. */
  readonly open: Sharer[]
  /** In the order of their arrival. */
  readonly waiting: Set<Sharer>
  /** Of those that wait. */
  waitingBytes: number
  /** When one of them was overtaken last, by the monotonic clock. */
  overtakenAt: number
}

/** Above so many holders those without a call are forgotten. */
const MAX_HOLDERS = 50_000

/**
 * Divides connections between holders (sessions, client addresses), so that one cannot take all of them. No share is
 * removed when its last call ends: a Map that changes with each request costs more than the call (decision 0008).
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
    const share: Share = {
      open: [],
      waiting: new Set<Sharer>(),
      waitingBytes: 0,
      overtakenAt: Number.NEGATIVE_INFINITY,
    }
    this.shares.set(holder, share)
    return share
  }

  /** Starts the call now, or when one of the same holder leaves; `full`: too many wait already. */
  enter(share: Share, call: Sharer): 'started' | 'waits' | 'full' {
    if (share.open.length >= this.most) {
      if (share.waitingBytes + call.keptBytes > this.mostBytes) return 'full'
      share.waiting.add(call)
      share.waitingBytes += call.keptBytes
      return 'waits'
    }
    share.open.push(call)
    call.start()
    return 'started'
  }

  /** A call that was started gives its place away: to `heir` if that one still waits, else to the one that has waited longest. */
  leave(share: Share, call: Sharer, heir: Sharer | null = null): void {
    share.open.splice(share.open.indexOf(call), 1)
    if (share.waiting.size === 0) return
    const next = heir !== null && share.waiting.has(heir) ? heir : share.waiting.values().next().value!
    this.forget(share, next)
    share.open.push(next)
    next.start()
  }

  /**
   * Asks the open calls that came at least `olderByMs` before `heir`, in the order of their start, for a place. The first that
   * agrees gives its own. One call of a holder is overtaken in `olderByMs`: more would leave reads that are merely slow no
   * time to end. false: none was now.
   */
  overtake(share: Share, heir: Sharer, olderByMs: number): boolean {
    const at = performance.now()
    if (at - share.overtakenAt < olderByMs) return false
    for (const call of share.open) {
      if (call.cameAt > heir.cameAt - olderByMs || !call.giveWay(heir)) continue
      share.overtakenAt = at
      return true
    }
    return false
  }

  /** A call that may wait wants to start no more. */
  forget(share: Share, call: Sharer): void {
    if (share.waiting.delete(call)) share.waitingBytes -= call.keptBytes
  }

  private forgetIdle(): void {
    for (const [holder, { open }] of this.shares) if (open.length === 0) this.shares.delete(holder)
  }
}
