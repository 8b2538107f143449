import type { Page } from 'playwright-core'
import { CLIENT } from '../helpers/system.ts'
import type { Demo } from './demo.ts'

/** Every code and token has this form in the sandbox, those that nobody ever presented included. */
const FORM = /\b(?:at|rt|code)-[A-Za-z0-9_-]{43}/g

/** What must not reach a browser: everything secret that the server ever sent to the sandbox. */
export function secretsOf({ sandbox }: Demo): Map<string, string> {
  const secrets = new Map([[CLIENT.clientSecret, 'the client secret']])
  for (const { form, headers } of sandbox.journal.entries()) {
    for (const name of ['code', 'refresh_token', 'code_verifier', 'token']) {
      const value = form?.[name]
      if (typeof value === 'string') secrets.set(value, name)
    }
    const bearer = /^Bearer (.+)$/.exec(headers.authorization ?? '')?.[1]
    if (bearer !== undefined) secrets.set(bearer, 'an access token')
  }
  return secrets
}

/** Where secrets are in what the browser sent, was sent and keeps; a code in a callback's address is none. */
export async function findLeaks(demo: Demo, pages: readonly Page[]): Promise<string[]> {
  const secrets = [...secretsOf(demo)].map(([secret, name]) => ({ secret, name, forms: formsOf(secret) }))
  const leaks: string[] = []
  for (const exchange of demo.reverseProxy.passed) {
    const where = `${exchange.method} ${exchange.path.split('?')[0]}`
    const rest = [JSON.stringify(exchange.requestHeaders), ...exchange.headers, exchange.body].join('\n')
    const inAddress = secretsIn(exchange.url, secrets)
    const allowed = exchange.path.startsWith('/auth/callback/') ? ['code', 'unused code'] : []
    leaks.push(...inAddress.filter((name) => !allowed.includes(name)).map((name) => `${name}: ${where}`))
    leaks.push(...secretsIn(rest, secrets).map((name) => `${name}: ${where}`))
  }
  for (const cookie of await demo.context.cookies()) {
    leaks.push(...secretsIn(JSON.stringify(cookie), secrets).map((name) => `${name}: cookie ${cookie.name}`))
  }
  for (const page of pages) {
    const kept = await page.evaluate<Record<string, string>>(EVERYTHING_KEPT)
    for (const [place, text] of Object.entries(kept)) {
      leaks.push(...secretsIn(text, secrets).map((name) => `${name}: ${place} of ${page.url()}`))
    }
  }
  return leaks
}

/** A secret by its name, and the texts that betray it. */
interface Wanted {
  secret: string
  name: string
  forms: readonly string[]
}

/** Names of the secrets in a text, in clear, percent-encoded or in base64. */
function secretsIn(text: string, secrets: readonly Wanted[]): string[] {
  const found = secrets.filter(({ forms }) => forms.some((form) => text.includes(form)))
  const unknown = (text.match(FORM) ?? []).filter((match) => !secrets.some(({ secret }) => secret === match))
  return [...found.map(({ name }) => name), ...unknown.map((match) => `unused ${match.split('-')[0]}`)]
}

function formsOf(secret: string): string[] {
  // In base64 a text looks different at each of three offsets; what its neighbours change is cut off.
  const encoded = [0, 1, 2].map((offset) => {
    const whole = Buffer.from('.'.repeat(offset) + secret).toString('base64url')
    return whole.slice(Math.ceil((offset * 4) / 3), -4)
  })
  const standard = encoded.map((form) => form.replaceAll('-', '+').replaceAll('_', '/'))
  return [secret, encodeURIComponent(secret), ...encoded, ...standard]
}

const EVERYTHING_KEPT = `(async () => ({
  html: document.documentElement.outerHTML,
  address: location.href,
  referrer: document.referrer,
  windowName: window.name,
  readableCookies: document.cookie,
  localStorage: JSON.stringify(localStorage),
  sessionStorage: JSON.stringify(sessionStorage),
  databases: JSON.stringify(await indexedDB.databases()),
  caches: typeof caches === 'object' ? JSON.stringify(await caches.keys()) : '',
  history: JSON.stringify(navigation.entries().map((entry) => entry.url)),
  inputs: JSON.stringify([...document.querySelectorAll('input, textarea')].map((field) => field.value)),
}))()`
