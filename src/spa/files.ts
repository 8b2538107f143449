import { realpath, stat } from 'node:fs/promises'
import { join, sep } from 'node:path'
import { START_PAGE } from '../config/kinds.ts'
import { decoded } from '../paths.ts'

export interface StaticFile {
  /** Path below the served folder, decoded, with `/` between segments. */
  path: string
  /** Bytes. */
  size: number
}

/**
 * The path of a request target (RFC 9112 section 3.2.1), decoded segment by segment, without query. null for a
 * target that names no page and no file: broken percent-encoding, an encoded separator, a control character, a
 * segment that begins with a dot (`/.well-known/` aside, RFC 8615).
 */
export function decodePath(target: string): string | null {
  const encoded = target.split('?', 1)[0] ?? ''
  if (!encoded.startsWith('/')) return null
  const segments: string[] = []
  for (const segment of encoded.slice(1).split('/')) {
    const wellKnown = segments.length === 0 && segment === '.well-known'
    const name = wellKnown ? segment : decoded(segment)
    if (name === null || (!wellKnown && /^\.|[/\\\x00-\x1f\x7f]/.test(name))) return null
    segments.push(name)
  }
  return `/${segments.join('/')}`
}

/**
 * The regular file that a decoded path names below `root`, a real path; `index.html` for a path that ends in a
 * slash; null where there is none. Follows symbolic links that stay in the folder: Kubernetes mounts volumes so.
 */
export async function findFile(root: string, path: string): Promise<StaticFile | null> {
  const relative = (path.endsWith('/') ? path + START_PAGE : path).slice(1)
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

const REVALIDATE = 'no-cache'
const FOREVER = 'public, max-age=31536000, immutable'

/**
 * `Cache-Control` of a file by its path below the served folder (RFC 9111, RFC 8246): a year where the name
 * holds a hash of the content, otherwise browsers revalidate the file on each use.
 */
export function cacheControlFor(path: string): string {
  return hasContentHash(path) ? FOREVER : REVALIDATE
}

// A wrong guess would keep a plain name in browsers for a year; a missed hash costs one revalidation. So dates
// (digits only), words (letters only) and model names (mixed case) count as plain names.
function hasContentHash(path: string): boolean {
  const candidate = /[.-]([0-9a-z]{8,64})(?:\.[a-z][a-z0-9]{0,7}){1,3}$/i.exec(path)?.[1]
  if (candidate !== undefined && /\d/.test(candidate) && /[a-z]/i.test(candidate)) {
    const hexadecimal = /^[0-9a-f]+$/.test(candidate)
    const base32 = /^[A-Z2-7]{8}$/.test(candidate)
    if (hexadecimal || base32) return true
  }
  return hasViteHash(path)
}

// Vite writes eight characters of base64url, in a folder for hashed files.
function hasViteHash(path: string): boolean {
  const hash = /(?:^|\/)assets\/(?:[^/]*-)?([\w-]{8})(?:\.[a-z][a-z0-9]{0,7}){1,2}$/i.exec(path)?.[1]
  return hash !== undefined && /\d/.test(hash) && /[A-Z]/.test(hash) && /[a-z]/.test(hash)
}
