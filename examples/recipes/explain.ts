// What to say at a failed call.
import { BffError } from './bff-client'
import { offerSignIn, showNotice, showSignInButton } from './page'

export function describe({ code, status, loginUrl, retryAfter, requestId }: BffError): string {
  if (code === 'login_required' || code === 'sign_in_loop') return 'Please sign in.'
  if (code === 'unreachable') return 'The server cannot be reached. Check your connection.'
  if (code === 'answered_by_page') return 'This page is out of date. Close all its tabs, then open it again.'
  if (retryAfter !== null)
    return `Try again in ${Math.ceil(retryAfter)} seconds${loginUrl === null ? '' : ', or sign in again'}.`
  if (code === null) return `The platform responded ${status}.`
  return `This did not work. ${status < 500 ? '' : 'Try again later. '}(${requestId})`
}

export function explain(error: unknown): void {
  if (!(error instanceof BffError)) throw error
  if (error.code === 'login_required' || error.code === 'sign_in_loop')
    showSignInButton(error.reason ?? error.code)
  // Only offered: the session may recover.
  else if (error.loginUrl !== null) offerSignIn(describe(error))
  else showNotice(describe(error))
}
