import { call, type Outcome } from './api.ts'
import { byId, checkedValue } from './dom.ts'
import { showFault, showProblem } from './problem-view.ts'
import { type SiteForm, siteCall } from './requests.ts'

export interface SiteView {
  /** Removes the last response from the page. */
  clear(): void
}

/**
 * The form that changes a Site. It shows the request while it is written, and the answer as it came.
 *
 * @param onLoginRequired called when the server says that nobody is signed in
 */
export function startSiteView(onLoginRequired: () => void): SiteView {
  const form = byId('site-form', HTMLFormElement)
  const button = byId('site-save', HTMLButtonElement)
  const parent = byId('site-parent', HTMLInputElement)
  const problemBox = byId('site-problem', HTMLElement)
  const status = byId('site-status', HTMLElement)
  const result = byId('site-result', HTMLElement)
  let saving = false

  const textOf = (id: string): string => byId(id, HTMLInputElement).value.trim()

  const readParent = (): number | null | undefined => {
    switch (checkedValue(form, 'parent-mode')) {
      case 'none':
        return null
      case 'id':
        return Number(parent.value)
      default:
        return undefined
    }
  }

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
    const { method, path, body } = siteCall(readForm())
    byId('site-request', HTMLElement).textContent = `${method} ${path}\n\n${indent(body)}`
  }

  const show = (outcome: Outcome): void => {
    showProblem(problemBox, outcome)
    status.textContent =
      outcome === null
        ? 'No answer'
        : `${outcome.status} · ${outcome.type} · ${Math.round(outcome.duration)} ms`
    result.hidden = outcome === null || outcome.problem !== null
    byId('site-body', HTMLElement).textContent = outcome?.text ?? ''
    if (outcome?.problem?.code === 'login_required') onLoginRequired()
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
    show(await call(siteCall(values)))
    button.removeAttribute('aria-busy')
    saving = false
  }

  form.addEventListener('input', preview)
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    void save()
  })
  preview()

  return {
    clear() {
      result.hidden = true
      status.textContent = ''
    },
  }
}

function indent(json: string): string {
  return JSON.stringify(JSON.parse(json), null, 2)
}
