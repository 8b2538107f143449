/**
 * Headers of every static answer. Scripts come from files of this origin only; inline styles are allowed because
 * style libraries need them. `base-uri` allows the own origin: Angular builds carry `<base href="/">`.
 * Sources: CSP Level 3, Fetch (CORP), HTML (COOP), Permissions Policy.
 */
export const STATIC_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy': [
    "default-src 'self'",
    "script-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "object-src 'none'",
    "base-uri 'self'",
    "form-action 'self'",
    "frame-ancestors 'none'",
  ].join('; '),
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': [
    'accelerometer',
    'browsing-topics',
    'camera',
    'display-capture',
    'geolocation',
    'gyroscope',
    'hid',
    'idle-detection',
    'local-fonts',
    'magnetometer',
    'microphone',
    'midi',
    'payment',
    'publickey-credentials-get',
    'screen-wake-lock',
    'serial',
    'usb',
    'xr-spatial-tracking',
  ]
    .map((feature) => `${feature}=()`)
    .join(', '),
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
}

const REVALIDATE = 'no-cache'
const FOREVER = 'public, max-age=31536000, immutable'

/**
 * The `Cache-Control` of a file (RFC 9111, RFC 8246): a year for names that carry a hash of the content, otherwise
 * a revalidation with every use.
 *
 * @param path path of the file below the served folder, with `/` between segments
 */
export function cacheControlFor(path: string): string {
  return hasContentHash(path) ? FOREVER : REVALIDATE
}

// A name that only looks hashed would be stuck in browsers for a year; a hash that is not recognised costs one
// revalidation. So dates (digits alone), words (letters alone) and model names (mixed case) count as plain names.
function hasContentHash(path: string): boolean {
  const candidate = /[.-]([0-9a-z]{8,64})(?:\.[a-z][a-z0-9]{0,7}){1,3}$/i.exec(path)?.[1]
  if (candidate !== undefined && /\d/.test(candidate) && /[a-z]/i.test(candidate)) {
    const hexadecimal = /^[0-9a-f]+$/.test(candidate)
    const base32 = /^[A-Z2-7]{8}$/.test(candidate)
    if (hexadecimal || base32) return true
  }
  return hasViteHash(path)
}

// Vite writes eight characters of base64url, in a folder for hashed files.
function hasViteHash(path: string): boolean {
  const hash = /(?:^|\/)assets\/(?:[^/]*-)?([\w-]{8})(?:\.[a-z][a-z0-9]{0,7}){1,2}$/i.exec(path)?.[1]
  return hash !== undefined && /\d/.test(hash) && /[A-Z]/.test(hash) && /[a-z]/.test(hash)
}
