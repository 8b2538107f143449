/** What a browser would do with a body of this type when it is opened or included on its own. */
export type MediaKind = 'data' | 'html' | 'script' | 'untyped'

const HTML = new Set(['text/html', 'application/xhtml+xml'])

// The JavaScript MIME types of the WHATWG MIME Sniffing standard.
const SCRIPT = new Set([
  'application/ecmascript',
  'application/javascript',
  'application/x-ecmascript',
  'application/x-javascript',
  'text/ecmascript',
  'text/javascript',
  'text/javascript1.0',
  'text/javascript1.1',
  'text/javascript1.2',
  'text/javascript1.3',
  'text/javascript1.4',
  'text/javascript1.5',
  'text/jscript',
  'text/livescript',
  'text/x-ecmascript',
  'text/x-javascript',
])

const ESSENCE = /^[!#$%&'*+.^_`|~0-9a-z-]+\/[!#$%&'*+.^_`|~0-9a-z-]+$/

/**
 * Sorts a `Content-Type` value. Anything that is not one plain media type is `untyped`: several field
 * lines, a list, or no type/subtype pair. Browsers pick a type out of such values by rules of their own.
 */
export function mediaKind(contentType: string | string[] | undefined): MediaKind {
  if (typeof contentType !== 'string') return 'untyped'
  // One answer is like the other, nearly always.
  if (contentType !== last.contentType) last = { contentType, kind: sort(contentType) }
  return last.kind
}

let last: { contentType: string; kind: MediaKind } = { contentType: '', kind: 'untyped' }

function sort(contentType: string): MediaKind {
  if (contentType.includes(',')) return 'untyped'
  const semicolon = contentType.indexOf(';')
  const essence = (semicolon === -1 ? contentType : contentType.slice(0, semicolon)).trim().toLowerCase()
  if (HTML.has(essence)) return 'html'
  if (SCRIPT.has(essence)) return 'script'
  return ESSENCE.test(essence) ? 'data' : 'untyped'
}
