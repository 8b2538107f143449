// A page of the server: who is signed in, what it reads and changes. `client/bff-client.ts` does the work.
import { cameBack, type Session, signOut, staySignedIn } from '../../client/bff-client.ts'
import { startDeclared } from './declared.ts'
import { byId } from './dom.ts'
import { startFluxView } from './flux-view.ts'
import { restoreForms } from './kept-forms.ts'
import { setNotice } from './notice.ts'
import { startScenarios } from './scenarios.ts'
import { endingText, signInFailureText } from './session.ts'
import { startSessionView } from './session-view.ts'
import { goToSignIn } from './sign-in.ts'
import { startSiteView } from './site-view.ts'
import { startStage } from './stage.ts'
import { createThief } from './thief.ts'

/** Only because this page shows a countdown. Another page asks when it loads, and listens. */
const POLL_MS = 1000

const signInButton = byId('sign-in', HTMLButtonElement)
const signOutButton = byId('sign-out', HTMLButtonElement)
let leaving = false
let timer: ReturnType<typeof setTimeout> | undefined

const failure = cameBack()
if (failure !== null) {
  setNotice('sign-in', { tone: 'warn', title: 'You are not signed in.', text: signInFailureText(failure) })
}
restoreForms()

const stage = startStage(() => fluxView.read())
const fluxView = startFluxView(stage.sent)
const siteView = startSiteView(stage.sent)
const declared = startDeclared(stage.sent)
const sessionView = startSessionView(showSession)
const thief = createThief(() => sessionView.current() !== null)
const scenarios = startScenarios({ sessionView, fluxView, stage, thief })

signInButton.addEventListener('click', goToSignIn)
signOutButton.addEventListener('click', () => void leave())
byId('stay', HTMLButtonElement).addEventListener('click', () => void stay())
document.addEventListener('visibilitychange', () => void poll())
void poll()

async function poll(): Promise<void> {
  clearTimeout(timer)
  if (document.hidden) return
  await Promise.all([sessionView.look(), stage.look()])
  clearTimeout(timer)
  timer = setTimeout(() => void poll(), POLL_MS)
}

function showSession(session: Session, first: boolean): void {
  const signedIn = session.authenticated
  signInButton.hidden = signedIn
  signOutButton.hidden = !signedIn
  stage.showSession(signedIn ? session : null)
  scenarios.showSession(signedIn)
  declared.showSession(signedIn ? session : null)
  if (signedIn) {
    for (const kind of ['ended', 'sign-in', 'sign-out']) setNotice(kind, null)
  } else {
    fluxView.clear()
    siteView.clear()
    setNotice('sign-out', null)
    const reason = session.ended?.reason ?? session.reason
    // A page that opens signed out tells a reason only if there is one; `logout` is no news to who did it.
    if (!leaving && (!first || (reason !== undefined && failure === null))) {
      setNotice('ended', {
        tone: 'info',
        title: 'You are signed out.',
        text: `${endingText(reason)} What you typed stays here.`,
        action: { words: 'Sign in again', run: goToSignIn },
      })
    }
  }
  const placeholder = signedIn && session.wac !== null ? `default: ${session.wac}` : 'server default'
  for (const id of ['flux-wac', 'site-wac']) byId(id, HTMLInputElement).placeholder = placeholder
}

async function leave(): Promise<void> {
  leaving = true
  signOutButton.disabled = true
  try {
    await signOut()
    setNotice('sign-out', {
      tone: 'good',
      title: 'You are signed out.',
      text: 'The session is gone on every replica. What you typed stays here.',
    })
    signInButton.focus()
  } catch {
    setNotice('sign-out', {
      tone: 'bad',
      title: 'You are still signed in.',
      text: 'The sign-out did not reach the server.',
      action: { words: 'Try again', run: () => void leave() },
    })
  }
  signOutButton.disabled = false
  leaving = false
}

async function stay(): Promise<void> {
  await staySignedIn().catch(() => {})
}
