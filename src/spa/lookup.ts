import { realpath, stat } from 'node:fs/promises'
import { join, sep } from 'node:path'

export interface StaticFile {
  /** Path below the served folder, decoded, with `/` between segments. */
  path: string
  /** Bytes. */
  size: number
}

/**
 * The path of a request target, decoded segment by segment; `null` for a target that can name no page and no file:
 * broken percent-encoding, an encoded separator, a control character, a segment that begins with a dot, but for
 * `/.well-known/` (RFC 8615).
 *
 * @param target the request target as received, with or without a query (RFC 9112 section 3.2.1)
 */
export function decodePath(target: string): string | null {
  const encoded = target.split('?', 1)[0] ?? ''
  if (!encoded.startsWith('/')) return null
  const segments: string[] = []
  for (const segment of encoded.slice(1).split('/')) {
    const wellKnown = segments.length === 0 && segment === '.well-known'
    const decoded = wellKnown ? segment : decodeSegment(segment)
    if (decoded === null) return null
    segments.push(decoded)
  }
  return `/${segments.join('/')}`
}

function decodeSegment(segment: string): string | null {
  try {
    const decoded = decodeURIComponent(segment)
    return /^\.|[/\\\x00-\x1f\x7f]/.test(decoded) ? null : decoded
  } catch {
    return null
  }
}

/**
 * The regular file that a decoded path names, `index.html` for a path that ends in a slash; `null` where there is
 * none. Symbolic links are followed as long as they stay in the folder (Kubernetes mounts volumes that way).
 *
 * @param root the served folder, as `realpath` gives it
 * @param path what `decodePath` gave
 */
export async function findFile(root: string, path: string): Promise<StaticFile | null> {
  const relative = (path.endsWith('/') ? `${path}index.html` : path).slice(1)
  if (relative.includes('//') || relative.startsWith('/')) return null
  try {
    const real = await realpath(join(root, relative))
    if (!real.startsWith(root.endsWith(sep) ? root : root + sep)) return null
    const found = await stat(real)
    return found.isFile() ? { path: relative, size: found.size } : null
  } catch (error) {
    if (isAbsence(error)) return null
    throw error
  }
}

function isAbsence(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code
  return code === 'ENOENT' || code === 'ENOTDIR' || code === 'ENAMETOOLONG' || code === 'ELOOP'
}
