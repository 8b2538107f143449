import { asCurl, asFetch } from './copy-as.ts'
import { element } from './dom.ts'
import type { Call } from './requests.ts'

/** The same call in three forms for the clipboard. */
interface Copies {
  call: Call
  /** With the functions of `client/bff-client.ts`. */
  client: string
}

/** Fills a box with three buttons. They copy the call as it is when they are pressed. */
export function showCopies(box: HTMLElement, read: () => Copies): void {
  const forms: [string, () => string][] = [
    ['fetch', () => asFetch(read().call)],
    ['curl', () => asCurl(read().call, location.origin)],
    ['client', () => read().client],
  ]
  box.append('Copy as')
  for (const [name, write] of forms) {
    const button = element('button', 'copy', name)
    button.type = 'button'
    button.ariaLabel = `Copy as ${name}`
    button.addEventListener('click', () => {
      void navigator.clipboard.writeText(write()).then(
        () => tell(button, name, 'copied'),
        () => tell(button, name, 'not permitted'),
      )
    })
    box.append(button)
  }
  box.append(element('span', 'visually-hidden'))
  box.lastElementChild!.role = 'status'
}

function tell(button: HTMLElement, name: string, word: string): void {
  button.dataset.told = word
  button.parentElement!.lastElementChild!.textContent = `${name}: ${word}`
  setTimeout(() => {
    delete button.dataset.told
  }, 1_500)
}
