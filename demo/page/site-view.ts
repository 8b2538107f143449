import { showCopies } from './copy-buttons.ts'
import { byId, checkedValue, makeScrollable } from './dom.ts'
import { type Exchange, exchange } from './exchange.ts'
import { showFault, showProblem } from './problem-view.ts'
import { clientCall, type Send, type SiteForm, siteCall } from './requests.ts'

interface SiteView {
  /** Removes the last response from the page. What is typed stays. */
  clear(): void
}

/**
 * The form that changes a Site. It shows the request while it is written, and the answer as it came.
 *
 * @param onSend called with each request
 */
export function startSiteView(onSend: Send): SiteView {
  const form = byId('site-form', HTMLFormElement)
  const button = byId('site-save', HTMLButtonElement)
  const parent = byId('site-parent', HTMLInputElement)
  const problemBox = byId('site-problem', HTMLElement)
  const status = byId('site-status', HTMLElement)
  const saved = byId('site-saved', HTMLElement)
  const result = byId('site-result', HTMLElement)
  makeScrollable(byId('site-body', HTMLElement), 'The answer of the Site')
  makeScrollable(byId('site-request', HTMLElement), 'The request')
  let saving = false

  const textOf = (id: string): string => byId(id, HTMLInputElement).value.trim()

  const readParent = (): number | null =>
    checkedValue(form, 'parent-mode') === 'id' ? Number(parent.value) : null

  const readForm = (): SiteForm => ({
    route: checkedValue(form, 'route') === 'POST' ? 'POST' : 'PUT',
    wac: textOf('site-wac'),
    siteId: Number(textOf('site-id')),
    name: textOf('site-name'),
    description: byId('site-description', HTMLTextAreaElement).value.trim(),
    code: textOf('site-code'),
    parent: readParent(),
  })

  const preview = (): void => {
    const byNumber = checkedValue(form, 'parent-mode') === 'id'
    parent.disabled = !byNumber
    parent.required = byNumber
    saved.textContent = ''
    const { method, path, body } = siteCall(readForm())
    byId('site-request', HTMLElement).textContent = `${method} ${path}\n\n${indent(body)}`
  }

  const show = ({ error, status: code, type, text, duration }: Exchange): void => {
    showProblem(problemBox, error)
    result.hidden = error !== null
    byId('site-body', HTMLElement).textContent = error === null ? text : ''
    status.textContent = error === null ? `${code} · ${type} · ${Math.round(duration)} ms` : ''
    saved.textContent = error === null ? `Saved at ${new Date().toLocaleTimeString()}.` : ''
    if (error !== null) problemBox.scrollIntoView({ block: 'nearest' })
  }

  const save = async (): Promise<void> => {
    if (saving) return
    const values = readForm()
    if (!Number.isSafeInteger(values.siteId) || !Number.isSafeInteger(values.parent ?? 0)) {
      result.hidden = true
      showFault(problemBox, 'The number is too large', 'Ids go up to 9007199254740991.')
      return
    }
    saving = true
    button.setAttribute('aria-busy', 'true')
    saved.textContent = 'Saving…'
    const call = siteCall(values)
    show(await exchange(call, onSend(call)))
    button.removeAttribute('aria-busy')
    saving = false
  }

  form.addEventListener('input', preview)
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    void save()
  })
  preview()
  showCopies(byId('site-copy', HTMLElement), () => ({
    call: siteCall(readForm()),
    client: clientCall(readForm()),
  }))

  return {
    clear() {
      result.hidden = true
      problemBox.hidden = true
      status.textContent = ''
      saved.textContent = ''
      byId('site-body', HTMLElement).textContent = ''
    },
  }
}

function indent(json: string): string {
  return JSON.stringify(JSON.parse(json), null, 2)
}
