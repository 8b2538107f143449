/** Where half-typed forms wait while the page is away for a sign-in. Tokens are not among them: there are none. */
const KEY = 'demo.forms'

type Field = HTMLInputElement | HTMLTextAreaElement

function fields(): Field[] {
  return [...document.querySelectorAll<Field>('form input, form textarea')]
}

/** Keeps what is typed and chosen, for the page as it comes back. */
export function keepForms(): void {
  const kept = fields().map((field) => [field.id, isChoice(field) ? field.checked : field.value])
  sessionStorage.setItem(KEY, JSON.stringify(kept))
}

/** Puts it back, once. */
export function restoreForms(): void {
  const text = sessionStorage.getItem(KEY)
  sessionStorage.removeItem(KEY)
  if (text === null) return
  for (const [id, value] of JSON.parse(text) as [string, string | boolean][]) {
    const field = fields().find((candidate) => candidate.id === id)
    if (field === undefined) continue
    if (typeof value === 'string') field.value = value
    else if (isChoice(field)) field.checked = value
  }
}

function isChoice(field: Field): field is HTMLInputElement {
  return field.type === 'radio' || field.type === 'checkbox'
}
