// What the other recipes show, in one paragraph: put your own page in its place.
import { signIn } from './bff-client'

let status: HTMLElement | undefined

function show(...parts: (string | Node)[]): void {
  // Not before: a build may import this file where no document is.
  status ??= document.createElement('p')
  status.setAttribute('role', 'status')
  if (!status.isConnected) document.body.append(status)
  status.replaceChildren(...parts)
}

export function showPage(): void {
  show('You are signed in.')
}

export function showNotice(text: string): void {
  show(text)
}

/** `why`: the reason of an end, the error of a sign-in, or null. */
export function showSignInButton(why: string | null): void {
  offerSignIn(why === null ? '' : `You are signed out (${why}).`)
}

/** For a session that goes on, too. */
export function offerSignIn(text: string): void {
  const button = document.createElement('button')
  button.type = 'button'
  button.textContent = 'Sign in'
  button.onclick = () => {
    signIn().catch(({ message }) => showNotice(message))
  }
  show(`${text} `, button)
}
