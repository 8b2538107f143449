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
  readonly open: Set<Sharer>
  /** In the order of their arrival. */
  readonly waiting: Set<Sharer>
  /** Of those that wait. */
  waitingBytes: number
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
    const share = { open: new Set<Sharer>(), waiting: new Set<Sharer>(), waitingBytes: 0 }
    this.shares.set(holder, share)
    return share
  }

  /** Starts the call now, or when one of the same holder leaves; `full`: too many wait already. */
  enter(share: Share, call: Sharer): 'started' | 'waits' | 'full' {
    if (share.open.size >= this.most) {
      if (share.waitingBytes + call.keptBytes > this.mostBytes) return 'full'
      share.waiting.add(call)
      share.waitingBytes += call.keptBytes
      return 'waits'
    }
    share.open.add(call)
    call.start()
    return 'started'
  }

  /** A call that was started gives its place away: to `heir` if that one still waits, else to the one that has waited longest. */
  leave(share: Share, call: Sharer, heir: Sharer | null = null): void {
    share.open.delete(call)
    if (share.waiting.size === 0) return
    const next = heir !== null && share.waiting.has(heir) ? heir : share.waiting.values().next().value!
    this.forget(share, next)
    share.open.add(next)
    next.start()
  }

  /** The first call that came at least `olderByMs` before this one, which waits, and gives way has to. false: there is none. */
  overtake(share: Share, heir: Sharer, olderByMs: number): boolean {
    for (const call of share.open)
      if (call.cameAt <= heir.cameAt - olderByMs && call.giveWay(heir)) return true
    return false
  }

  /** A call that may wait wants to start no more. */
  forget(share: Share, call: Sharer): void {
    if (share.waiting.delete(call)) share.waitingBytes -= call.keptBytes
  }

  private forgetIdle(): void {
    for (const [holder, { open }] of this.shares) if (open.size === 0) this.shares.delete(holder)
  }
}
