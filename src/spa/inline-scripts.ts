import { createHash } from 'node:crypto'

/** What a page has inline and its Content-Security-Policy blocks. */
export type BlockedInline =
  /** `source`: what permits this text in `script-src`. */
  | { readonly kind: 'script'; readonly source: string }
  /** No hash permits it. `attribute`: its name, such as `onload`. */
  | { readonly kind: 'handler'; readonly attribute: string }

const SCRIPT = /<script\b([^>]*)>([\s\S]*?)<\/script\s*>/gi
const COMMENT = /<!--[\s\S]*?-->/g
const HANDLER = /<[a-z][^>]*?\s(on[a-z]+)\s*=/gi

/** The types of a script element that `script-src` decides about (HTML section 4.12.1); others are data. */
const EXECUTABLE = /^(module|importmap|speculationrules|(text|application)\/(javascript|ecmascript))?$/i

/** The inline scripts and event handlers of a page that these sources of `script-src` do not permit, each once. */
export function blockedInline(html: string, sources: readonly string[]): BlockedInline[] {
  const permitted = new Set(sources.map(canonical))
  const text = html.replace(COMMENT, '')
  const blocked = new Map<string, BlockedInline>()
  for (const [, attributes = '', script = ''] of text.matchAll(SCRIPT)) {
    if (script.trim() === '' || /\ssrc\s*=/i.test(attributes)) continue
    if (!EXECUTABLE.test(/\stype\s*=\s*["']?([^"'\s>]*)/i.exec(attributes)?.[1] ?? '')) continue
    const hashes = ['sha256', 'sha384', 'sha512'].map((name) => hashOf(name, script))
    if (!hashes.some((hash) => permitted.has(canonical(hash))))
      blocked.set(hashes[0]!, { kind: 'script', source: hashes[0]! })
  }
  for (const [, attribute = ''] of text.replace(SCRIPT, '').matchAll(HANDLER))
    blocked.set(attribute, { kind: 'handler', attribute })
  return [...blocked.values()]
}

/** CSP Level 3 takes base64 and base64url. */
function canonical(source: string): string {
  return source
    .replaceAll('-', '+')
    .replaceAll('_', '/')
    .replace(/={1,2}'$/, "'")
}

function hashOf(name: string, script: string): string {
  // As the HTML parser hands it on.
  const text = script.replace(/\r\n?/g, '\n')
  return `'${name}-${createHash(name).update(text).digest('base64')}'`
}
