// Warns before the session ends.
import { onSessionChange, type Session, session, staySignedIn } from './bff-client'

const WARN_MS = 120_000
const DAY_MS = 86_400_000 // timers of more than 24 days fire at once
/** `dialog` and `stay` are those of warn.html. Returns what ends it, for an effect of React. */
export function warnBeforeEnd(dialog: HTMLDialogElement, stay: HTMLButtonElement): () => void {
  const clock = dialog.querySelector('output')
  let timer: ReturnType<typeof setTimeout> | undefined
  let ticks: ReturnType<typeof setInterval> | undefined
  let ended = false

  function stopTimers(): void {
    clearTimeout(timer)
    clearInterval(ticks)
  }

  function plan(current: Session): void {
    stopTimers()
    if (ended) return
    if (!current.authenticated) {
      dialog.close()
      return
    }
    const ends = current.idleExpiresAt < current.expiresAt ? current.idleExpiresAt : current.expiresAt
    const left = Date.parse(ends) - Date.parse(current.now)
    stay.hidden = ends === current.expiresAt
    if (left > WARN_MS) dialog.close()
    else {
      const end = performance.now() + left
      countDown(end)
      ticks = setInterval(countDown, 1_000, end)
      if (!dialog.open) dialog.showModal()
    }
    timer = setTimeout(look, Math.min(left > WARN_MS ? left - WARN_MS : left + 1_000, DAY_MS))
  }

  /** Not in a live region: a screen reader would say each second. */
  function countDown(end: number): void {
    const seconds = Math.max(0, Math.ceil((end - performance.now()) / 1_000))
    if (clock) clock.value = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`
  }

  function look(): void {
    session().then(plan, () => {
      timer = setTimeout(look, 10_000)
    })
  }

  stay.onclick = () => {
    staySignedIn().then(plan, look)
  }
  const stop = onSessionChange(plan)
  look()
  return () => {
    ended = true
    stop()
    stopTimers()
  }
}
