import type { SignedIn } from '../../client/bff-client.ts'
import { formatSpan } from './session.ts'

interface Span {
  /** Milliseconds since 1970. If it is unknown, the bar uses the longest remaining time seen so far. */
  start?: number
  end: number
}

/** A countdown: the time that is left in words and as a bar. */
export function createMeter(
  text: HTMLElement,
  bar: HTMLProgressElement,
  spanOf: (session: SignedIn) => Span,
) {
  let end: number | null = null
  let createdAt = ''
  let shownSeconds = -1

  const tick = (now: number): void => {
    if (end === null) return
    const left = Math.max(0, end - now)
    // The browser lays out and paints again after each write, changed or not.
    const seconds = Math.ceil(left / 1_000)
    if (seconds === shownSeconds) return
    shownSeconds = seconds
    text.textContent = left === 0 ? 'expired' : `${formatSpan(left)} left`
    bar.value = Math.min(left, bar.max)
    bar.dataset.low = String(left < bar.max / 3)
  }

  const update = (session: SignedIn | null, now: number): void => {
    if (session === null) {
      end = null
      shownSeconds = -1
      text.textContent = ''
      bar.value = 0
      return
    }
    const next = spanOf(session)
    if (next.end !== end || session.createdAt !== createdAt) {
      const whole = Math.max(1, next.end - (next.start ?? now))
      bar.max = session.createdAt === createdAt ? Math.max(bar.max, whole) : whole
    }
    createdAt = session.createdAt
    if (next.end !== end) shownSeconds = -1
    end = next.end
    tick(now)
  }

  return { tick, update }
}
