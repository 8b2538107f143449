import { type Kind, quoted, Refused } from './kinds.ts'

/** Directives of CSP Level 3 that take sources; each exists in the default policy or falls back to one that does. */
const EXTENSIBLE = [
  'default-src',
  'script-src',
  'style-src',
  'img-src',
  'font-src',
  'connect-src',
  'media-src',
  'object-src',
  'frame-src',
  'child-src',
  'worker-src',
  'manifest-src',
  'form-action',
]

const SCHEME = /^[a-z][a-z0-9+.-]*:$/i
/** RFC 3986 characters but for `;` and `,`, which would end the directive and the policy. */
const HOST =
  /^([a-z][a-z0-9+.-]*:\/\/)?((\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\])(:(\d{1,5}|\*))?(\/[\w.~!$&()+*=:@%/-]*)?$/i

/**
 * Sources by directive, to add to the default Content-Security-Policy. Refused: what would permit any inline script or
 * eval (a hash permits one known text), and directives that take no sources or decide about framing.
 */
export const CSP_SOURCES: Kind<Readonly<Record<string, readonly string[]>>> = {
  accepts:
    'directives with sources, as in `img-src https://tiles.example; connect-src https://errors.example`',
  read(text) {
    if (/[^\x20-\x7e]/.test(text)) return new Refused(`must be one line of ASCII, but is ${quoted(text)}`)
    const added: Record<string, readonly string[]> = {}
    const faults: string[] = []
    for (const part of text.split(';').map((given) => given.trim())) {
      if (part === '') continue
      const [given = '', ...sources] = part.split(/ +/)
      const directive = given.toLowerCase()
      if (!EXTENSIBLE.includes(directive)) {
        faults.push(`must name directives of ${EXTENSIBLE.join(', ')}, but names ${quoted(given)}`)
        continue
      }
      if (added[directive] !== undefined)
        faults.push(`must name each directive once, but repeats ${directive}`)
      if (sources.length === 0)
        faults.push(`must name the sources of each directive, but ${directive} has none`)
      for (const source of sources) {
        const why = whyRefused(directive, source.toLowerCase())
        if (why !== null) faults.push(`${why}, but ${directive} has ${quoted(source)}`)
      }
      added[directive] = sources
    }
    return faults.length > 0 ? new Refused(faults) : added
  },
}

const KEYWORDS: Readonly<Record<string, readonly string[]>> = {
  'script-src': ["'wasm-unsafe-eval'"],
  'style-src': ["'unsafe-inline'"],
}

/** Digits of base64 or base64url for 32, 48 and 64 bytes, as CSP Level 3 takes them. */
const HASH = /^'(sha256-[\w+/-]{43}=?|sha384-[\w+/-]{64}|sha512-[\w+/-]{86}(==)?)'$/

/** null: the source may be added. */
function whyRefused(directive: string, source: string): string | null {
  if (source === "'self'" || KEYWORDS[directive]?.includes(source)) return null
  if (/^'sha\d/.test(source)) {
    if (directive === 'style-src')
      return "must not have a hash in style-src: inline styles are permitted, and a hash would forbid all others (CSP Level 3: it switches 'unsafe-inline' off)"
    if (directive !== 'script-src') return 'must have hashes in script-src alone'
    return HASH.test(source) ? null : "must have whole hashes, as in 'sha256-' and 44 characters of base64"
  }
  if (source.startsWith("'")) {
    return "must not permit inline script or eval, and of the keywords takes only 'self', 'unsafe-inline' in style-src, 'wasm-unsafe-eval' and hashes in script-src"
  }
  if (/^(self|none|(wasm-)?unsafe-[a-z-]+)$/.test(source)) return 'must have its keywords in single quotes'
  if (HOST.test(source)) return null
  // A scheme lets a page that was tricked into one script element run any text as script.
  if (directive === 'script-src') {
    return 'must not permit inline script or eval, so script-src takes only hosts such as https://cdn.example, and hashes'
  }
  if (source === '*' || SCHEME.test(source)) return null
  return 'must have sources such as https://tiles.example or blob:'
}

// Browsers drop the whole header, and so permit everything, where one member is malformed.
const ORIGIN = String.raw`(\*|self|src|"[\x21\x23-\x5b\x5d-\x7e]+")`
const FEATURE = new RegExp(`^[a-z][a-z0-9-]*=(\\*|self|\\( *(${ORIGIN}( +${ORIGIN})*)? *\\))$`)

/** A `Permissions-Policy` header value (Permissions Policy section 5.2, RFC 9651). */
export const PERMISSIONS_POLICY: Kind<string> = {
  accepts: 'a Permissions-Policy, as in `geolocation=(self), camera=()`',
  read(text) {
    if (/[^\x20-\x7e]/.test(text)) {
      return new Refused(`must be a Permissions-Policy in one line of ASCII, but is ${quoted(text)}`)
    }
    const faulty = text.split(',').find((feature) => !FEATURE.test(feature.trim()))
    if (faulty === undefined) return text
    return new Refused(
      `must be a Permissions-Policy, as in \`geolocation=(self), camera=()\`, but has ${quoted(faulty.trim())}`,
    )
  },
}
