// Warns before the session ends, by the dialog of warn.html.
import { onSessionChange, type Session, session, staySignedIn } from './bff-client'

const WARN_MS = 120_000
const DAY_MS = 86_400_000 // timers of more than 24 days fire at once
const dialog = document.querySelector<HTMLDialogElement>('#expiry')!
const stay = document.querySelector<HTMLButtonElement>('#stay')!
let timer: ReturnType<typeof setTimeout> | undefined

function plan(current: Session): void {
  clearTimeout(timer)
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
onSessionChange(plan)
look()
