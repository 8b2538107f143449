// A sign-in in a popup, at the path /signed-in of the page.
import { cameBack, session, signIn } from './bff-client'
import { explain } from './explain'
import { showSignInButton } from './page'

const failures = new BroadcastChannel('sign-in-failure')

export function openSignIn(): void {
  failures.onmessage = ({ data }) => showSignInButton(data)
  const popup = open('/auth/login?returnTo=/signed-in', 'sign-in', 'popup,width=480,height=640')
  if (popup === null) signIn().catch(explain) // the browser blocked the popup
}

if (location.pathname === '/signed-in') {
  const error = cameBack()
  if (error !== null) failures.postMessage(error)
  session().finally(() => close())
}
