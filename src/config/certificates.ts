import type { Secret } from '../secret.ts'

// Loaded on first use: few configurations have certificates, and the primary of WORKERS needs 2 MB less without it.
const crypto = () => process.getBuiltinModule('node:crypto')

/** Whether the text begins with a certificate in PEM. */
export function isCertificate(pem: string): boolean {
  return succeeds(() => new (crypto().X509Certificate)(pem))
}

/** Whether the text is a private key in PEM without a passphrase. */
export function isPrivateKey(pem: string): boolean {
  return succeeds(() => crypto().createPrivateKey(pem))
}

/** Whether the private key is that of the certificate. Both are valid PEM. */
export function isKeyOf(certificate: string, key: Secret): boolean {
  const { X509Certificate, createPrivateKey } = crypto()
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
