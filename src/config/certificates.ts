import { createPrivateKey, X509Certificate } from 'node:crypto'
import type { Secret } from '../secret.ts'

/** Whether the text begins with a certificate in PEM. */
export function isCertificate(pem: string): boolean {
  return succeeds(() => new X509Certificate(pem))
}

/** Whether the text is a private key in PEM without a passphrase. */
export function isPrivateKey(pem: string): boolean {
  return succeeds(() => createPrivateKey(pem))
}

/** Whether the private key is that of the certificate. Both are valid PEM. */
export function isKeyOf(certificate: string, key: Secret): boolean {
  return new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key.reveal()))
}

function succeeds(parse: () => unknown): boolean {
  try {
    parse()
    return true
  } catch {
    return false
  }
}
