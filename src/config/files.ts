import { X509Certificate } from 'node:crypto'
import { statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { type Kind, printable, quoted, Refused } from './kinds.ts'
import { readText } from './secrets.ts'

/** The directory of a page's build, as an absolute path. */
export const PAGE_BUILD = printable('a directory with an index.html', (text) => {
  try {
    return statSync(join(text, 'index.html')).isFile() ? resolve(text) : undefined
  } catch {
    return undefined
  }
})

/** The text of a file of PEM certificates, each of which can be read. */
export const CERTIFICATES: Kind<string> = {
  accepts: 'the path of a file of PEM certificates',
  read(path) {
    const text = readText(path)
    if (text instanceof Refused) {
      return new Refused(`must be a file that can be read, but ${quoted(path)} cannot (${text.problem})`)
    }
    const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? []
    return blocks.length > 0 && blocks.every(isCertificate)
      ? text
      : new Refused(
          `must name a file of PEM certificates, but ${quoted(path)} holds none, or one that cannot be read`,
        )
  },
}

function isCertificate(pem: string): boolean {
  try {
    new X509Certificate(pem)
    return true
  } catch {
    return false
  }
}
