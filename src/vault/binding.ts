import { createPublicKey, verify } from 'node:crypto'
import { type Problem, problem, unavailable } from '../errors.ts'
import { DEVICE_COOKIE } from '../http/cookies.ts'
import { isObject, jsonObject } from '../json.ts'
import type { Keyring } from '../keyring.ts'
import { PATHS } from '../paths.ts'
import type { RecordKey } from './store/record.ts'

/**
 * Device Bound Session Credentials (W3C draft): what the server issues and what it accepts. Nothing is stored here: a
 * challenge and a device cookie prove themselves. The record keeps the public key, and whether the session is bound.
 */
export interface Binding {
  /** `Secure-Session-Registration` of the response that starts a session. Its challenge names the session for 60 seconds. */
  registration(key: RecordKey): string
  /**
   * Reads the `Secure-Session-Response` of a registration: the session that its challenge names, and the public key that
   * signed it. null for anything faulty or late. The request needs no cookie.
   */
  readRegistration(response: string | undefined): Registration | null
  /** The session instructions: the body that tells the browser which requests need the device cookie. */
  readonly instructions: Instructions
  /** `Secure-Session-Challenge` of a refresh; holds 30 seconds. */
  challenge(key: RecordKey): string
  /** Whether a `Secure-Session-Response` answers a current challenge of this session with this key. */
  isProof(key: RecordKey, device: DeviceKey, response: string | undefined): boolean
  /** The device cookie of a registration: short, so that the first refresh follows soon and binds the session. */
  firstCookie(key: RecordKey): DeviceCookie
  /** The device cookie of a refresh. */
  cookie(key: RecordKey): DeviceCookie
  /** Until when a device cookie proves this session, epoch milliseconds; null if it does not. */
  provenUntil(key: RecordKey, cookie: string | null): number | null
}

export interface DeviceCookie {
  value: string
  maxAgeSeconds: number
}

/** A point of P-256: x and y as in a JWK (RFC 7518 section 6.2.1), 43 characters of base64url each, one after the other. */
export type DeviceKey = string

export interface Registration {
  key: RecordKey
  device: DeviceKey
}

type Instructions = ReturnType<typeof instructionsFor>

/** What came of a browser's request for a new device cookie: label of `bff_device_refresh_total`. */
export const DEVICE_REFRESHES = ['granted', 'challenged', 'refused', 'unavailable'] as const
export type DeviceRefresh = (typeof DEVICE_REFRESHES)[number]

const FIRST_COOKIE_SECONDS = 60
/** Chromium allows about six signatures in nine minutes for each site. */
const COOKIE_SECONDS = 600
/** When to ask again after the server could not refresh. */
const RETRY_SECONDS = 5

/** By how much a cookie outlives its browser's copy: one sent at the last moment may reach a replica whose clock is ahead. */
const LATE_MS = 5_000
const REGISTRATION_MS = 60_000
const CHALLENGE_MS = 30_000
const COORDINATE_LENGTH = 43
/** Longer than any response of a browser: a key, a challenge and a signature take less than 700 characters. */
const MAX_RESPONSE_LENGTH = 4_096
const ATTRIBUTES = 'Path=/; Secure; HttpOnly; SameSite=Strict'
/** What needs the cookie. Signing in and out must work without it. */
const BOUND_PATHS = ['/flux', '/site', '/data', '/auth/session']

/**
 * The problem for a request of a bound session without a valid device cookie. `skipped`: the browser says that it could
 * not get one, for example while the store is away, so nobody has to sign in because of an outage.
 */
export function deviceProblem(skipped: boolean): Problem {
  if (skipped) return unavailable('store_unavailable', RETRY_SECONDS, { detail: NOT_NOW })
  return problem('login_required', { detail: NOT_PROVEN, members: { reason: DEVICE } })
}

/** The member `reason` of `login_required` where the device is not proven. */
export const DEVICE = 'device'
const NOT_NOW = 'The browser could not prove its device to this server now. Your session is still valid.'
const NOT_PROVEN =
  'The session is bound to the device on which it began, and this request does not come from there.'

/** `now`: epoch milliseconds. */
export function createBinding({
  keyring,
  publicUrl,
  now,
}: {
  keyring: Pick<Keyring, 'seal' | 'open' | 'signDevice' | 'verifyDevice'>
  publicUrl: string
  now: () => number
}): Binding {
  const { host } = new URL(publicUrl)

  /** `<instant in seconds>.<signature>`: holds for one use and one session, until then. */
  function issue(use: 'challenge' | 'cookie', key: RecordKey, ms: number): string {
    const until = String(Math.ceil((now() + ms) / 1_000))
    return `${until}.${keyring.signDevice(`${use}.${key}.${until}`)}`
  }

  function cookieFor(key: RecordKey, maxAgeSeconds: number): DeviceCookie {
    return { value: issue('cookie', key, maxAgeSeconds * 1_000 + LATE_MS), maxAgeSeconds }
  }

  function validUntil(use: 'challenge' | 'cookie', key: RecordKey, issued: string): number | null {
    const [, until, signature] = /^(\d{1,12})\.([A-Za-z0-9_-]{43})$/.exec(issued) ?? []
    if (until === undefined || signature === undefined || Number(until) * 1_000 <= now()) return null
    return keyring.verifyDevice(`${use}.${key}.${until}`, signature) ? Number(until) * 1_000 : null
  }

  return {
    registration(key) {
      const until = now() + REGISTRATION_MS
      const challenge = keyring.seal('device', JSON.stringify([key, until]), 'registration')
      return `(ES256);path="${PATHS.device}";challenge="${challenge}"`
    },

    readRegistration(response) {
      const token = readToken(response)
      const opened = token === null ? null : keyring.open('device', token.challenge, 'registration')
      if (token === null || opened === null || token.device === null) return null
      const [key, until] = JSON.parse(opened.text) as [RecordKey, number]
      return now() < until && isSignedBy(token, token.device) ? { key, device: token.device } : null
    },

    instructions: instructionsFor(publicUrl),
    challenge: (key) => `"${issue('challenge', key, CHALLENGE_MS)}";id="${host}"`,

    isProof(key, device, response) {
      const token = readToken(response)
      // The challenge first: to verify a signature costs a hundred times as much.
      return (
        token !== null && validUntil('challenge', key, token.challenge) !== null && isSignedBy(token, device)
      )
    },

    firstCookie: (key) => cookieFor(key, FIRST_COOKIE_SECONDS),
    cookie: (key) => cookieFor(key, COOKIE_SECONDS),
    provenUntil: (key, cookie) => (cookie === null ? null : validUntil('cookie', key, cookie)),
  }
}

function instructionsFor(publicUrl: string) {
  const { host, hostname: domain } = new URL(publicUrl)
  return {
    // One for the host: a second sign-in replaces the first, whose cookie has the same name.
    session_identifier: host,
    refresh_url: PATHS.deviceRefresh,
    scope: {
      include_site: false,
      scope_specification: [
        { type: 'exclude', domain, path: '/' },
        ...BOUND_PATHS.map((path) => ({ type: 'include', domain, path })),
      ],
    },
    credentials: [{ type: 'cookie', name: DEVICE_COOKIE, attributes: ATTRIBUTES }],
  }
}

/** A JWT (RFC 7515) of type `dbsc+jwt`, not verified. */
interface DeviceToken {
  challenge: string
  /** The key in its header; a registration has one. */
  device: DeviceKey | null
  signed: string
  signature: Buffer
}

function readToken(response = ''): DeviceToken | null {
  // Before it is split: anybody may send 16 KB of dots.
  if (response.length > MAX_RESPONSE_LENGTH) return null
  // The draft quotes it as a structured string, Chromium 156 does not.
  const text = response.replace(/^"(.*)"$/, '$1')
  const [header = '', payload = '', signature = '', ...more] = text.split('.')
  if (signature === '' || more.length > 0) return null
  const { alg, typ, jwk } = readPart(header)
  const { jti } = readPart(payload)
  if (alg !== 'ES256' || typ !== 'dbsc+jwt' || typeof jti !== 'string') return null
  return {
    challenge: jti,
    device: deviceKeyOf(jwk),
    signed: `${header}.${payload}`,
    signature: Buffer.from(signature, 'base64url'),
  }
}

/** The members of a JSON object in base64url; none where it is not one. */
function readPart(encoded: string): Record<string, unknown> {
  return jsonObject(Buffer.from(encoded, 'base64url').toString()) ?? {}
}

function deviceKeyOf(jwk: unknown): DeviceKey | null {
  if (!isObject(jwk)) return null
  const { kty, crv, x, y } = jwk
  const isCoordinate = (value: unknown): value is string =>
    typeof value === 'string' && value.length === COORDINATE_LENGTH && /^[A-Za-z0-9_-]+$/.test(value)
  return kty === 'EC' && crv === 'P-256' && isCoordinate(x) && isCoordinate(y) ? x + y : null
}

function isSignedBy({ signed, signature }: DeviceToken, device: DeviceKey): boolean {
  const [x, y] = [device.slice(0, COORDINATE_LENGTH), device.slice(COORDINATE_LENGTH)]
  try {
    const key = createPublicKey({ key: { kty: 'EC', crv: 'P-256', x, y }, format: 'jwk' })
    return verify('sha256', Buffer.from(signed), { key, dsaEncoding: 'ieee-p1363' }, signature)
  } catch {
    // No point of the curve.
    return false
  }
}
