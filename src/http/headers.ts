const HEADERS: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy':
    "default-src 'none'; base-uri 'none'; object-src 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
}

const SECURE_HEADERS = { ...HEADERS, 'strict-transport-security': 'max-age=31536000' }

/** What stands on every answer of ours that says nothing else; HSTS only where browsers come by https. */
export function securityHeaders(secure: boolean): Readonly<Record<string, string>> {
  return secure ? SECURE_HEADERS : HEADERS
}
