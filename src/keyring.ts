import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto'
import { packText, unpackText } from './packed-text.ts'
import type { Secret } from './secret.ts'

/** A text that is sealed for one purpose does not open for another. */
export type Purpose = 'tokens' | 'login' | 'record-key' | 'device'

interface Opened {
  text: string
  /** Sealed under an older secret: seal it again on the next write. */
  underOlderSecret: boolean
}

/**
 * The keys derived from `SESSION_SECRET`. The first secret signs and seals; every secret of the list verifies and
 * opens, so a rolling change of secrets ends no session.
 */
export interface Keyring {
  /** HMAC-SHA256 of a cookie's value, base64url, 43 characters. */
  sign(value: string): string
  /** `older`: signed under an older secret. */
  verify(value: string, signature: string): 'newest' | 'older' | 'invalid'
  /**
   * AES-256-GCM as `<key id>.<iv, ciphertext and tag in base64url>`. `context` is authenticated with the text,
   * which opens only in the same context.
   */
  seal(purpose: Purpose, text: string, context: string): string
  /** null where no key of the list opens the text in this context. */
  open(purpose: Purpose, sealed: string, context: string): Opened | null
  /** As `seal`, packed, as a string of one byte a character: half as long, and not for cookies. */
  sealBinary(purpose: Purpose, text: string, context: string): string
  /** Opens what `sealBinary` returned; null as in `open`. */
  openBinary(purpose: Purpose, sealed: string, context: string): Opened | null
  /** HMAC-SHA256 under a key of its own for what proves a device, base64url, 43 characters. */
  signDevice(value: string): string
  /** Whether any secret of the list made this signature with `signDevice`. */
  verifyDevice(value: string, signature: string): boolean
  /**
   * 12 hex digits of an HMAC under the newest secret: `users` name a user in the log, `tries` a client or user name whose
   * tries are counted. Without the secret nobody finds names that share digits.
   */
  digitsOf(of: 'users' | 'tries', text: string): string
}

interface Keys {
  /** Six bytes. */
  id: Buffer
  signing: KeyObject
  devices: KeyObject
  sealing: KeyObject
  users: KeyObject
  tries: KeyObject
}

const IV_BYTES = 12
const TAG_BYTES = 16
const ID_BYTES = 6
const NOTHING = Buffer.alloc(0)

export function createKeyring(secrets: readonly Secret[]): Keyring {
  const ring = secrets.map(deriveKeys)
  const newest = ring[0]
  if (newest === undefined) throw new Error('at least one secret is needed')

  /** Which key of the list made the signature: 0 is the newest, -1 none. */
  function signerOf(key: 'signing' | 'devices', value: string, signature: string): number {
    const given = Buffer.from(signature)
    return ring.findIndex((keys) => {
      const expected = Buffer.from(macOf(keys[key], value))
      return given.length === expected.length && timingSafeEqual(given, expected)
    })
  }

  function verify(value: string, signature: string): 'newest' | 'older' | 'invalid' {
    const age = signerOf('signing', value, signature)
    if (age < 0) return 'invalid'
    return age === 0 ? 'newest' : 'older'
  }

  /** Key id, iv, ciphertext, tag. */
  function sealBytes(purpose: Purpose, bytes: Buffer, context: string): Buffer {
    const iv = randomBytes(IV_BYTES)
    const cipher = createCipheriv('aes-256-gcm', newest!.sealing, iv, { authTagLength: TAG_BYTES })
    cipher.setAAD(Buffer.from(`${purpose}:${context}`))
    return Buffer.concat([newest!.id, iv, cipher.update(bytes), cipher.final(), cipher.getAuthTag()])
  }

  function openBytes(
    purpose: Purpose,
    sealed: Buffer,
    context: string,
  ): { bytes: Buffer; underOlderSecret: boolean } | null {
    const age = ring.findIndex(({ id }) => id.equals(sealed.subarray(0, ID_BYTES)))
    const rest = sealed.subarray(ID_BYTES)
    if (age < 0 || rest.length < IV_BYTES + TAG_BYTES) return null
    const decipher = createDecipheriv('aes-256-gcm', ring[age]!.sealing, rest.subarray(0, IV_BYTES), {
      authTagLength: TAG_BYTES,
    })
    decipher.setAAD(Buffer.from(`${purpose}:${context}`))
    decipher.setAuthTag(rest.subarray(rest.length - TAG_BYTES))
    try {
      const bytes = decipher.update(rest.subarray(IV_BYTES, rest.length - TAG_BYTES))
      return { bytes: Buffer.concat([bytes, decipher.final()]), underOlderSecret: age > 0 }
    } catch {
      return null
    }
  }

  return {
    sign: (value) => macOf(newest.signing, value),
    verify,
    signDevice: (value) => macOf(newest.devices, value),
    verifyDevice: (value, signature) => signerOf('devices', value, signature) >= 0,
    seal(purpose, text, context) {
      const sealed = sealBytes(purpose, Buffer.from(text), context)
      return `${sealed.toString('base64url', 0, ID_BYTES)}.${sealed.toString('base64url', ID_BYTES)}`
    },
    digitsOf: (of, text) => createHmac('sha256', newest[of]).update(text).digest('hex').slice(0, 12),
    open(purpose, sealed, context) {
      const opened = openBytes(purpose, readText(sealed) ?? NOTHING, context)
      return opened && { text: opened.bytes.toString(), underOlderSecret: opened.underOlderSecret }
    },
    sealBinary: (purpose, text, context) => sealBytes(purpose, packText(text), context).toString('latin1'),
    openBinary(purpose, sealed, context) {
      const opened = openBytes(purpose, Buffer.from(sealed, 'latin1'), context)
      if (opened === null) return null
      // Version 0.2 sealed the text as it was.
      return { text: unpackText(opened.bytes), underOlderSecret: opened.underOlderSecret }
    },
  }
}

function macOf(key: KeyObject, value: string): string {
  return createHmac('sha256', key).update(value).digest('base64url')
}

const ID_LENGTH = (ID_BYTES * 4) / 3

/** The bytes of `<key id>.<the rest>`, both in base64url; null for any other text. */
function readText(sealed: string): Buffer | null {
  if (sealed[ID_LENGTH] !== '.') return null
  const encoded = sealed.slice(0, ID_LENGTH) + sealed.slice(ID_LENGTH + 1)
  const bytes = Buffer.from(encoded, 'base64url')
  // Padding, white space and unused bits would decode to the same bytes.
  return bytes.toString('base64url') === encoded ? bytes : null
}

function deriveKeys(secret: Secret): Keys {
  const derive = (label: string, bytes: number): Buffer =>
    Buffer.from(hkdfSync('sha256', secret.reveal(), '', `bff ${label} v1`, bytes))
  // KeyObjects, because raw buffers make each call four times slower on Node 24.
  return {
    id: derive('key id', ID_BYTES),
    signing: createSecretKey(derive('cookie signing', 32)),
    devices: createSecretKey(derive('device binding', 32)),
    sealing: createSecretKey(derive('sealing', 32)),
    users: createSecretKey(derive('users in the log', 32)),
    tries: createSecretKey(derive('counted tries', 32)),
  }
}
