import type { Call } from './requests.ts'

/** A script for the console of this page. */
export function asFetch({ method, path, body }: Call): string {
  if (method === 'GET') return `await (await fetch(${quote(path)})).text()`
  return `await fetch(${quote(path)}, {
  method: ${quote(method)},
  headers: { 'content-type': 'application/json' },
  body: ${quote(body ?? '')},
})`
}

/** A command for a POSIX shell. The cookie is HttpOnly: only the developer tools show it. */
export function asCurl({ method, path, body }: Call, origin: string): string {
  const shell = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`
  const cookie = origin.startsWith('https:') ? '__Host-Http-session' : 'session'
  const parts = [`curl ${shell(origin + path)}`, `-H 'X-CSRF: 1'`, `-b "${cookie}=$SESSION_COOKIE"`]
  if (method !== 'GET') {
    parts.push(`-X ${method}`, `-H 'Content-Type: application/json'`, `-d ${shell(body ?? '')}`)
  }
  return parts.join(' ')
}

/** A JavaScript string in single quotes. */
export function quote(text: string): string {
  return `'${text.replace(/[\\']/g, '\\$&').replaceAll('\n', '\\n')}'`
}
