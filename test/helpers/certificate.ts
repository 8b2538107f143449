// A self-signed TLS certificate for localhost. By openssl, which most machines have: the package selfsigned would need a
// dozen others for one file less than this.

import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { toolPath } from './child.ts'

export interface Certificate {
  readonly keyFile: string
  readonly certFile: string
  /** The CA certificate to trust, which is the certificate itself. */
  readonly caFile: string
}

const run = promisify(execFile)

/** A new self-signed certificate, by default for localhost, 127.0.0.1 and ::1, good for one day, in this folder. */
export async function createCertificate(
  folder: string,
  names = 'DNS:localhost,IP:127.0.0.1,IP:::1',
): Promise<Certificate> {
  const keyFile = join(folder, 'key.pem')
  const certFile = join(folder, 'cert.pem')
  await run(toolPath('openssl'), [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
    ...['-days', '1', '-subj', '/CN=localhost', '-keyout', keyFile, '-out', certFile],
    ...['-addext', `subjectAltName=${names}`],
  ])
  return { keyFile, certFile, caFile: certFile }
}

/** Replaces a certificate by one that expired a day ago, with the same key and names. */
export async function expire({ keyFile, certFile }: Certificate): Promise<void> {
  await run(toolPath('openssl'), [
    'x509',
    '-in',
    certFile,
    '-signkey',
    keyFile,
    '-days',
    '-1',
    '-out',
    certFile,
  ])
}
