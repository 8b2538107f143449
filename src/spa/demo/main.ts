import { call } from './api.ts'
import { byId } from './dom.ts'
import { startFluxView } from './flux-view.ts'
import { cleanAddress, readLoginNotice } from './login-notice.ts'
import { showProblem } from './problem-view.ts'
import type { Session } from './session.ts'
import { startSessionView } from './session-view.ts'
import { startSiteView } from './site-view.ts'

const LOGIN_LINKS = ['sign-in', 'sign-in-large', 'sign-in-again-link']
const RETURN_TO_LIMIT = 512

const again = byId('sign-in-again', HTMLElement)
const signOut = byId('sign-out', HTMLButtonElement)
const notice = byId('login-notice', HTMLElement)
let wasSignedIn = false
let leaving = false

tidyAddress()
pointLoginLinks()
const view = startSessionView(showSignIn)
const fluxView = startFluxView(askToSignIn)
const siteView = startSiteView(askToSignIn)
signOut.addEventListener('click', () => void leave())
byId('login-notice-close', HTMLButtonElement).addEventListener('click', () => {
  notice.hidden = true
})

function tidyAddress(): void {
  const address = new URL(location.href)
  const text = readLoginNotice(address)
  if (text !== null) {
    byId('login-notice-text', HTMLElement).textContent = text
    notice.hidden = false
  }
  const clean = cleanAddress(address)
  if (clean.href !== location.href) history.replaceState(history.state, '', clean)
}

function pointLoginLinks(): void {
  const here = location.pathname + location.search
  const returnTo = here.length <= RETURN_TO_LIMIT ? here : '/'
  for (const id of LOGIN_LINKS) {
    byId(id, HTMLAnchorElement).href = `/auth/login?returnTo=${encodeURIComponent(returnTo)}`
  }
}

function showSignIn(session: Session): void {
  const signedIn = session !== null
  byId('sign-in', HTMLElement).hidden = signedIn
  signOut.hidden = !signedIn
  if (signedIn) {
    again.hidden = true
    notice.hidden = true
  } else if (wasSignedIn) {
    again.hidden = leaving
    fluxView.clear()
    siteView.clear()
  }
  wasSignedIn = signedIn
  const wac = session?.wac ?? null
  for (const id of ['flux-wac', 'site-wac']) {
    byId(id, HTMLInputElement).placeholder = wac === null ? 'server default' : `default: ${wac}`
  }
}

function askToSignIn(): void {
  again.hidden = false
  void view.look()
}

async function leave(): Promise<void> {
  leaving = true
  signOut.disabled = true
  showProblem(byId('sign-out-problem', HTMLElement), await call({ method: 'POST', path: '/auth/logout' }))
  await view.look()
  signOut.disabled = false
  leaving = false
}
