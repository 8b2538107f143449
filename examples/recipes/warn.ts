// Warns before the session ends.
import { onSessionChange, type Session, session, staySignedIn } from './bff-client'

const WARN_MS = 120_000
const DAY_MS = 86_400_000 // timers of more than 24 days fire at once
/** `dialog` and `stay` are those of warn.html. Returns what ends it, for an effect of React. */
export function warnBeforeEnd(dialog: HTMLDialogElement, stay: HTMLButtonElement): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined
  let ended = false

  function plan(current: Session): void {
    clearTimeout(timer)
    if (ended) return
    if (!current.authenticated) {
      dialog.close()
      return
    }
    const ends = current.idleExpiresAt < current.expiresAt ? current.idleExpiresAt : current.expiresAt
    const left = Date.parse(ends) - Date.parse(current.now)
    stay.hidden = ends === current.expiresAt
    if (left > WARN_MS) dialog.close()
    else if (!dialog.open) dialog.showModal()
    timer = setTimeout(look, Math.min(left > WARN_MS ? left - WARN_MS : left + 1_000, DAY_MS))
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
    clearTimeout(timer)
  }
}
