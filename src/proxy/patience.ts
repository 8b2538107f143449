import { afterReading } from '../timeout.ts'

/** A patience passes in so many steps, and each counts at most twice its length, however long the process was held up. */
const STEPS = 10

/**
 * How long the other side may keep this one waiting. It passes only between `run` and `pause`, and hardly while the process is
 * held up. Calls back when it is over.
 */
export class Patience {
  private readonly ms: number
  private readonly onOver: () => void
  private leftMs: number
  private since = 0
  private stop = (): void => {}

  constructor(ms: number, onOver: () => void) {
    this.ms = ms
    this.leftMs = ms
    this.onOver = onOver
  }

  run(): void {
    this.since = performance.now()
    this.beginStep()
  }

  pause(): void {
    this.stop()
    this.endStep()
  }

  /** All of it is left again. */
  renew(): void {
    this.leftMs = this.ms
  }

  private beginStep(): void {
    this.stop = afterReading(Math.min(this.ms / STEPS, this.leftMs), () => {
      this.endStep()
      if (this.leftMs > 0) this.beginStep()
      else this.onOver()
    })
  }

  private endStep(): void {
    const now = performance.now()
    this.leftMs -= Math.min(now - this.since, (2 * this.ms) / STEPS)
    this.since = now
  }
}
