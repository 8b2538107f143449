import type { BffError } from '../../client/bff-client.ts'
import { element, makeScrollable } from './dom.ts'
import { isPassing } from './exchange.ts'
import { goToSignIn } from './sign-in.ts'

/** Fills a live region with a failure and the body of its response, or empties and hides it. */
export function showProblem(box: HTMLElement, error: BffError | null): void {
  box.hidden = error === null
  box.dataset.tone = error !== null && isPassing(error) ? 'warn' : 'bad'
  box.replaceChildren(...(error === null ? [] : describe(error)))
}

/** Shows an input error that was found before the request. */
export function showFault(box: HTMLElement, title: string, detail: string): void {
  box.hidden = false
  box.dataset.tone = 'bad'
  box.replaceChildren(element('p', 'problem-title', title), element('p', 'problem-detail', detail))
}

function describe(error: BffError): HTMLElement[] {
  const { status, code, reason, loginUrl, requestId, message, body } = error
  const facts = element('dl', 'facts')
  const add = (name: string, value: string | null, className: string): void => {
    if (value === null) return
    facts.append(element('div', '', element('dt', '', name), element('dd', className, value)))
  }
  if (status > 0) add('Status', String(status), 'problem-status')
  add('Code', code, 'problem-code')
  add('Reason', reason, 'problem-reason')
  add('Request', requestId, 'problem-request-id')
  const title =
    status === 0
      ? 'The server cannot be reached.'
      : code === null
        ? 'The platform answered with an error.'
        : message
  const parts: HTMLElement[] = [element('p', 'problem-title', title), facts]
  // For a session that has ended the notice at the top of the page offers it.
  if (loginUrl !== null && isPassing(error)) parts.push(signInButton())
  if (body === '') return parts
  const text = element('pre', 'code problem-body', body)
  makeScrollable(text, 'The body of the answer')
  return [...parts, element('p', 'problem-body-hint', 'Its response, byte for byte:'), text]
}

function signInButton(): HTMLButtonElement {
  const button = element('button', 'button problem-sign-in', 'Sign in again')
  button.type = 'button'
  button.addEventListener('click', goToSignIn)
  return button
}
