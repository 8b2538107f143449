import { createHash, randomBytes } from 'node:crypto'
import type { CookieSerializeOptions } from '@fastify/cookie'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Keyring } from '../keyring.ts'
import { PATHS } from '../paths.ts'

export interface VerifiedCookie {
  sessionId: string
  recordKey: string
  /** Signed under an older secret: GET and POST /auth/session set both cookies of the session again. */
  underOlderSecret: boolean
}

/**
 * Every cookie that this server sets, with its attributes, and what a request's cookies prove. The session cookie,
 * `<session id>.<signature>`, and the record cookie last until the browser closes.
 */
export interface SessionCookies {
  readonly sessionName: string
  /** Attributes of the session cookie, for @fastify/session, which sets it at a sign-in. */
  readonly sessionAttributes: CookieSerializeOptions & { path: string; httpOnly: true; secure: boolean }
  newSessionId(): string
  /** The value of the session cookie, signed under the newest secret. */
  sign(sessionId: string): string
  /** The raw session cookie if the header has it exactly once and with the length of ours, else null; not verified. */
  read(header: string | undefined): string | null
  /** null unless it has the one form that this server sets and a current secret signed it. */
  verify(value: string): VerifiedCookie | null
  /** `read` and `verify` in one. */
  verifyIn(header: string | undefined): VerifiedCookie | null
  /**
   * The record key of this browser's session; null without one. For sign-in and sign-out alone: the record cookie
   * counts where the session cookie proves nothing. That one is repeated, not of ours, or missing, because it is `Strict`
   * and the request comes from another site.
   */
  recordKeyIn(request: FastifyRequest): string | null
  /** Sets the session cookie to a value of `sign`. */
  setSession(reply: FastifyReply, signed: string): void
  /**
   * Sets the record cookie, whose value is the sealed record key. It is `Lax`, so that browsers send it on the redirect
   * back from the authorization server.
   */
  setRecordKey(reply: FastifyReply, recordKey: string): void
  /** The device cookie of a header if it is there exactly once, else null; not verified. */
  readDevice(header: string | undefined): string | null
  /** Sets the device cookie (vault/binding.ts). */
  setDevice(reply: FastifyReply, cookie: { value: string; maxAgeSeconds: number }): void
  /** Clears the cookies of a session. */
  clearSession(reply: FastifyReply): void
  /** The login cookies in a header, not verified, each found when it is asked for. */
  loginCookiesIn(header: string | undefined): Iterable<{ id: string; value: string }>
  /** How many bytes it takes in the `Cookie` header. */
  loginLength(cookie: { id: string; value: string }): number
  /** Sets the login cookie of one sign-in; `maxAgeSeconds` 0 clears it. */
  setLogin(reply: FastifyReply, cookie: { id: string; value: string; maxAgeSeconds: number }): void
  /**
   * Notes for a minute that a sign-in was sent to `PUBLIC_URL`. This cookie has our host as its `Domain` where a
   * `Domain` can name it, so browsers at another host name reject it. It proves nothing but the host name.
   */
  noteSentToPublicHost(reply: FastifyReply): void
  /** Removes that note. */
  forgetSentToPublicHost(reply: FastifyReply): void
  wasSentToPublicHost(header: string | undefined): boolean
}

/** Percent-encoded or padded variants of a cookie would verify too, so only this form is accepted. */
const CANONICAL = /^[A-Za-z0-9_-]{43}\.[A-Za-z0-9_-]{43}$/
const CANONICAL_LENGTH = 87

/** What a cookie's `Domain` can name: no IPv6 address, no underscore, no dot at the end. */
const DOMAIN = /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/

/** Chromium refuses `__Host-Http-` for the cookie of a bound session, after the server has learnt the key. */
export const DEVICE_COOKIE = '__Host-device'

const SENT_COOKIE = 'sign-in-sent'
const SENT_SECONDS = 60

export function createSessionCookies({
  keyring,
  publicUrl,
  secure,
}: {
  keyring: Keyring
  publicUrl: string
  /** Browsers reach this server by https. */
  secure: boolean
}): SessionCookies {
  const { hostname } = new URL(publicUrl)
  // Browsers keep scripts and plain http from setting cookies of this prefix.
  const prefix = secure ? '__Host-Http-' : ''
  const sessionName = `${prefix}session`
  const recordName = `${prefix}record`
  const loginPrefix = `${prefix}login-`
  const common = { path: '/', httpOnly: true, secure } as const
  const strict = { ...common, sameSite: 'strict' } as const
  const lax = { ...common, sameSite: 'lax' } as const
  // So without our prefix: a `__Host-` cookie cannot have a domain.
  const domain = DOMAIN.test(hostname) ? { domain: hostname } : {}
  const sent = { ...lax, path: PATHS.login, ...domain } as const

  function sign(sessionId: string): string {
    return `${sessionId}.${keyring.sign(sessionId)}`
  }

  function verify(value: string): VerifiedCookie | null {
    if (!CANONICAL.test(value)) return null
    const sessionId = value.slice(0, 43)
    const verdict = keyring.verify(sessionId, value.slice(44))
    if (verdict === 'invalid') return null
    return { sessionId, recordKey: recordKeyOf(sessionId), underOlderSecret: verdict === 'older' }
  }

  let lastHeader = ''
  let lastValue: string | null = null

  // A call reads it twice if its session is not in the cache.
  function read(header: string | undefined): string | null {
    if (header === undefined) return null
    if (header !== lastHeader) {
      const value = soleCookie(header, sessionName)
      lastValue = value !== null && value.length === CANONICAL_LENGTH ? value : null
      lastHeader = header
    }
    return lastValue
  }

  function openRecordKey(value: string | null): string | null {
    const opened = value === null ? null : keyring.open('record-key', value, 'cookie')
    return opened !== null && /^[0-9a-f]{64}$/.test(opened.text) ? opened.text : null
  }

  function verifyIn(header: string | undefined): VerifiedCookie | null {
    const value = read(header)
    return value === null ? null : verify(value)
  }

  function* loginCookiesIn(header = ''): Iterable<{ id: string; value: string }> {
    for (const pair of header.split(';')) {
      const at = pair.indexOf('=')
      const name = withoutOuterSpaces(pair.slice(0, Math.max(at, 0)))
      const id = name.startsWith(loginPrefix) ? name.slice(loginPrefix.length) : ''
      if (/^[A-Za-z0-9_-]{1,64}$/.test(id)) yield { id, value: pair.slice(at + 1).trim() }
    }
  }

  return {
    sessionName,
    sessionAttributes: strict,
    newSessionId: () => randomBytes(32).toString('base64url'),
    sign,
    read,
    verify,
    verifyIn,
    recordKeyIn: ({ headers: { cookie = '' } }) =>
      verifyIn(cookie)?.recordKey ?? openRecordKey(firstCookie(cookie, recordName)),
    setSession: (reply, signed) => void reply.setCookie(sessionName, signed, strict),
    setRecordKey: (reply, recordKey) =>
      void reply.setCookie(recordName, keyring.seal('record-key', recordKey, 'cookie'), lax),
    readDevice: (header) => (header === undefined ? null : soleCookie(header, DEVICE_COOKIE)),
    setDevice: (reply, { value, maxAgeSeconds }) =>
      void reply.setCookie(DEVICE_COOKIE, value, { ...strict, maxAge: maxAgeSeconds }),
    clearSession(reply) {
      // Without https there is none.
      if (secure) reply.clearCookie(DEVICE_COOKIE, strict)
      reply.clearCookie(sessionName, strict)
      reply.clearCookie(recordName, lax)
    },
    loginCookiesIn,
    loginLength: ({ id, value }) => `; ${loginPrefix}${id}=${value}`.length,
    setLogin: (reply, { id, value, maxAgeSeconds }) =>
      void reply.setCookie(loginPrefix + id, value, { ...lax, maxAge: maxAgeSeconds }),
    noteSentToPublicHost: (reply) =>
      void reply.setCookie(SENT_COOKIE, '1', { ...sent, maxAge: SENT_SECONDS }),
    forgetSentToPublicHost: (reply) => void reply.clearCookie(SENT_COOKIE, sent),
    wasSentToPublicHost: (header) => header !== undefined && cookieAt(header, SENT_COOKIE, 0) >= 0,
  }
}

/** The record key of a session: the store never sees a cookie's value. */
export function recordKeyOf(sessionId: string): string {
  return createHash('sha256').update(sessionId).digest('hex')
}

/** The value of a cookie that is in the header exactly once, else null. Does not decode. */
function soleCookie(header: string, name: string): string | null {
  const first = cookieAt(header, name, 0)
  return first >= 0 && cookieAt(header, name, first + 1) >= 0 ? null : firstCookie(header, name, first)
}

/** The value of the first cookie of this name, else null. Does not decode. */
function firstCookie(header: string, name: string, at = cookieAt(header, name, 0)): string | null {
  if (at < 0) return null
  const start = at + name.length + 1
  const end = header.indexOf(';', start)
  return (end < 0 ? header.slice(start) : header.slice(start, end)).trim()
}

function cookieAt(header: string, name: string, from: number): number {
  for (let at = header.indexOf(`${name}=`, from); at >= 0; at = header.indexOf(`${name}=`, at + 1)) {
    let start = at
    // Spaces only: browsers let other sites set a cookie `\xA0__Host-…`.
    while (header[start - 1] === ' ') start -= 1
    if (start === 0 || header[start - 1] === ';') return at
  }
  return -1
}

/** `trim` would also remove a byte A0: see `cookieAt`. A pattern for the end would be quadratic in inner spaces. */
function withoutOuterSpaces(name: string): string {
  let start = 0
  let end = name.length
  while (name[start] === ' ') start += 1
  while (end > start && name[end - 1] === ' ') end -= 1
  return name.slice(start, end)
}
