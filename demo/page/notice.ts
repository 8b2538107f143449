import { byId } from './dom.ts'

interface Notice {
  tone: 'good' | 'info' | 'warn' | 'bad'
  title: string
  text: string
  /** Shown as "Trying again in 4 s", until this instant by `performance.now()`. */
  retryAt?: number
  /** Without one the button closes the notice. */
  action?: { words: string; run: () => void }
}

const box = byId('notice', HTMLElement)
const button = byId('notice-action', HTMLButtonElement)
const countdown = byId('notice-countdown', HTMLElement)
const notices = new Map<string, Notice>()
let shown = ''

/** Sets or removes the notice of this kind. The header shows the newest, in view wherever the page is scrolled. */
export function setNotice(kind: string, notice: Notice | null): void {
  const before = notices.get(kind)
  if (notice === null) notices.delete(kind)
  else if (before === undefined) notices.set(kind, notice)
  else Object.assign(before, { retryAt: undefined, action: undefined }, notice)
  show()
}

function show(): void {
  const newest = [...notices].at(-1)
  box.hidden = newest === undefined
  if (newest === undefined) {
    shown = ''
    return
  }
  const [kind, { tone, title, text, action }] = newest
  tick()
  // Written only on a change. Otherwise a screen reader would announce it at each attempt.
  const content = [kind, title, text].join('\n')
  if (content === shown) return
  shown = content
  box.dataset.kind = kind
  box.dataset.tone = tone
  byId('notice-title', HTMLElement).textContent = title
  byId('notice-text', HTMLElement).textContent = text
  button.textContent = action?.words ?? 'Close'
  button.onclick = () => {
    const current = notices.get(kind)?.action
    if (current === undefined) setNotice(kind, null)
    else current.run()
  }
}

function tick(): void {
  const retryAt = [...notices.values()].at(-1)?.retryAt
  const seconds = retryAt === undefined ? 0 : Math.ceil((retryAt - performance.now()) / 1_000)
  const text = retryAt === undefined ? '' : seconds > 0 ? `Trying again in ${seconds} s.` : 'Trying again…'
  if (countdown.textContent !== text) countdown.textContent = text
}

setInterval(tick, 250)
// What has focus must not lie under the header or the notice below it (WCAG 2.2, 2.4.11).
const header = byId('top', HTMLElement)
const observer = new ResizeObserver(() => {
  const bottom = Math.max(header.clientHeight, box.getBoundingClientRect().bottom)
  document.documentElement.style.scrollPaddingTop = `${bottom + 12}px`
})
for (const watched of [header, box]) observer.observe(watched)
