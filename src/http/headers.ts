import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'

// Every set of security headers of this server. Sources: CSP Level 3, Fetch (CORP), HTML (COOP), Permissions
// Policy, RFC 6797 section 7.1 (HSTS is sent only if browsers come by https).
const HSTS = 'max-age=31536000'

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

const SECURE_HEADERS = { ...HEADERS, 'strict-transport-security': HSTS }

/** Headers of every response of this server that does not set them itself. `secure`: browsers come by https. */
export function securityHeaders(secure: boolean): Readonly<Record<string, string>> {
  return secure ? SECURE_HEADERS : HEADERS
}

/** Adds the security headers that the reply lacks, and its request id. */
export function addSecurityHeaders(request: FastifyRequest, reply: FastifyReply, secure: boolean): void {
  for (const [name, value] of Object.entries(securityHeaders(secure))) {
    if (!reply.hasHeader(name)) reply.header(name, value)
  }
  reply.header('x-request-id', request.id)
}

const RELAYED: readonly string[] = [
  'x-content-type-options',
  'nosniff',
  'content-security-policy',
  "default-src 'none'; frame-ancestors 'none'; sandbox",
  'cross-origin-resource-policy',
  'same-origin',
  'referrer-policy',
  'no-referrer',
]
const SECURE_RELAYED = [...RELAYED, 'strict-transport-security', HSTS]

/** Headers of every relayed response, names and values in turn. `secure`: browsers come by https. */
export function relayedHeaders(secure: boolean): readonly string[] {
  return secure ? SECURE_RELAYED : RELAYED
}

/** The policy of one of our own pages: its one inline style, and its one inline script that may call this server. */
export function pagePolicy({ style, script }: { style: string; script?: string | undefined }): string {
  const scripts = script === undefined ? '' : ` script-src '${hashOf(script)}'; connect-src 'self';`
  return `default-src 'none'; style-src '${hashOf(style)}';${scripts} base-uri 'none'; form-action 'none'; frame-ancestors 'none'`
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`
}

const UNUSED_FEATURES = [
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

/**
 * The page's Content-Security-Policy. Scripts come from files of this origin only; style libraries need inline
 * styles, and Angular builds carry `<base href="/">`.
 */
const STATIC_POLICY: Readonly<Record<string, readonly string[]>> = {
  'default-src': ["'self'"],
  'script-src': ["'self'"],
  'style-src': ["'self'", "'unsafe-inline'"],
  'img-src': ["'self'", 'data:', 'blob:'],
  'font-src': ["'self'", 'data:'],
  'connect-src': ["'self'"],
  'object-src': ["'none'"],
  'base-uri': ["'self'"],
  'form-action': ["'self'"],
  'frame-ancestors': ["'none'"],
}

/** Headers of every static file. `csp`: sources to add to its policy; `permissionsPolicy`: replaces the default. */
export function staticHeaders({
  csp,
  referrerPolicy,
  permissionsPolicy,
}: Omit<NonNullable<Config['static']>, 'dir'>): Readonly<Record<string, string>> {
  return {
    'content-security-policy': staticPolicy(csp),
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'permissions-policy': permissionsPolicy ?? UNUSED_FEATURES.map((feature) => `${feature}=()`).join(', '),
    'referrer-policy': referrerPolicy,
    'x-content-type-options': 'nosniff',
  }
}

function staticPolicy(added: Readonly<Record<string, readonly string[]>>): string {
  const policy = new Map(Object.entries(STATIC_POLICY))
  for (const [directive, sources] of Object.entries(added)) {
    // Without a directive of its own a kind of resource falls back to one that says 'self' (CSP Level 3, section 6.8.3).
    const before = policy.get(directive) ?? ["'self'"]
    // 'none' counts only if it is alone.
    const kept = before.filter((source) => source !== "'none'" && !sources.includes(source))
    policy.set(directive, [...kept, ...sources])
  }
  return [...policy].map(([directive, sources]) => `${directive} ${sources.join(' ')}`).join('; ')
}
