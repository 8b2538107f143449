// A browser's device: a key of P-256, and the tokens that it signs (W3C Device Bound Session Credentials).

import { generateKeyPairSync, sign } from 'node:crypto'
import type { Answer, Browser } from './browser.ts'

export type Device = ReturnType<typeof createDevice>

export function createDevice() {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const jwk = publicKey.export({ format: 'jwk' }) as { kty: string; crv: string; x: string; y: string }

  /** A JWT of this device. `header` and `payload` replace or add members. */
  function token(header: object, payload: object): string {
    const signed = `${part({ alg: 'ES256', typ: 'dbsc+jwt', ...header })}.${part(payload)}`
    const signature = sign('sha256', Buffer.from(signed), { key: privateKey, dsaEncoding: 'ieee-p1363' })
    return `${signed}.${signature.toString('base64url')}`
  }

  return {
    jwk,
    token,
    /** The token of a registration. */
    registration: (challenge: string) => token({ jwk }, { jti: challenge }),
    /** The token of a refresh. */
    proof: (challenge: string) => token({}, { jti: challenge }),
  }
}

function part(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}

/** The challenge of a sign-in's `Secure-Session-Registration`. */
export function registrationChallenge({ headers }: Pick<Answer, 'headers'>): string {
  return /challenge="([^"]+)"/.exec(String(headers['secure-session-registration']))?.[1] ?? ''
}

/** The challenge of a 403 to a refresh. */
export function refreshChallenge({ headers }: Pick<Answer, 'headers'>): string {
  return /^"([^"]+)"/.exec(String(headers['secure-session-challenge']))?.[1] ?? ''
}

/** Asks for a new device cookie, as a browser does: the challenge first, then with a proof. */
export async function refreshDevice(browser: Browser, device: Device): Promise<Answer> {
  const ask = (proof?: string): Promise<Answer> =>
    browser.fetch('/auth/device/refresh', {
      method: 'POST',
      headers: proof === undefined ? {} : { 'secure-session-response': proof },
    })
  const challenged = await ask()
  return challenged.status === 403 ? await ask(device.proof(refreshChallenge(challenged))) : challenged
}
