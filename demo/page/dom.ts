/** The element with this id. Throws when the page has none of that kind: page and script then disagree. */
export function byId<T extends Element>(id: string, kind: abstract new (...args: never[]) => T): T {
  const found = document.getElementById(id)
  if (!(found instanceof kind)) throw new Error(`The page has no ${kind.name} with the id "${id}"`)
  return found
}

/** A new element with a class and content; text is inserted as text, never as markup. */
export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  className: string,
  ...content: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name)
  if (className !== '') made.className = className
  made.append(...content)
  return made
}

/** The value of the checked radio button of a group. */
export function checkedValue(form: HTMLFormElement, name: string): string {
  const value = new FormData(form).get(name)
  return typeof value === 'string' ? value : ''
}

/** Lets the keyboard scroll a box: not every browser does so by itself. */
export function makeScrollable(box: HTMLElement, label: string): void {
  box.tabIndex = 0
  box.role = 'region'
  box.ariaLabel = label
}
