import { readFileSync, statSync } from 'node:fs'
import { isIP } from 'node:net'
import { join, resolve } from 'node:path'
import { ID, WAC as WAC_PATTERN } from '../paths.ts'
import { Secret } from '../secret.ts'
import { isCertificate, isPrivateKey } from './certificates.ts'

/** Why a text is not accepted; each fault completes the sentence "NAME …". */
export class Refused<T = never> {
  readonly fault: string
  /** All of them, the first included. */
  readonly faults: readonly string[]
  /** The part of the value that has no fault, to be held against other variables; undefined for none. */
  readonly sound: T | undefined

  constructor(faults: string | readonly string[], sound?: T) {
    this.faults = [faults].flat()
    this.fault = this.faults[0] ?? ''
    this.sound = sound
  }
}

/** One kind of value: what it accepts, and how to read it. */
export interface Kind<T> {
  /** Completes the sentence "NAME must be …"; the documentation uses it too. */
  readonly accepts: string
  read(text: string): T | Refused<T>
}

/** A value for a message: quoted, so that stray spaces show, and cut to 80 characters. */
export function quoted(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text)
}

/** A kind whose faults print the value: not for secrets. `read` returns undefined to refuse. */
function printable<T>(accepts: string, read: (text: string) => T | undefined): Kind<T> {
  return {
    accepts,
    read: (text) => read(text) ?? new Refused(`must be ${accepts}, but is ${quoted(text)}`),
  }
}

export function wholeNumber(min: number, max: number): Kind<number> {
  return printable(`a whole number from ${min} to ${max}`, (text) => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
    return value >= min && value <= max ? value : undefined
  })
}

export function oneOf<const T extends string>(...values: T[]): Kind<T> {
  const named = values.map((value) => `\`${value}\``).join(', ')
  return printable(`one of ${named}`, (text) => values.find((value) => value === text))
}

export function matching(pattern: RegExp, accepts: string): Kind<string> {
  return printable(accepts, (text) => (pattern.test(text) ? text : undefined))
}

/** A comma-separated list. Spaces around an entry are ignored; an empty entry is refused. */
export function listOf<T>(entry: Kind<T>): Kind<readonly T[]> {
  return {
    accepts: `a comma-separated list, each ${entry.accepts}`,
    read(text) {
      const values: T[] = []
      const faults: string[] = []
      for (const [index, part] of text.split(',').entries()) {
        const value = part.trim() === '' ? new Refused('is empty') : entry.read(part.trim())
        if (!(value instanceof Refused)) values.push(value)
        else faults.push(...value.faults.map((fault) => `has a faulty entry: number ${index + 1} ${fault}`))
      }
      return faults.length > 0 ? new Refused(faults, values) : values
    },
  }
}

/** A kind whose value is converted. */
export function mapped<T, U>(kind: Kind<T>, change: (value: T) => U): Kind<U> {
  return {
    accepts: kind.accepts,
    read(text) {
      const value = kind.read(text)
      if (!(value instanceof Refused)) return change(value)
      return new Refused(value.faults, value.sound === undefined ? undefined : change(value.sound))
    },
  }
}

/** A kind of lower-case words that reads them in any case. */
export function inAnyCase<T>(kind: Kind<T>): Kind<T> {
  return { accepts: `${kind.accepts}, in any case`, read: (text) => kind.read(text.toLowerCase()) }
}

/** A kind or one fixed word. */
export function orWord<T, const W extends string>(word: W, kind: Kind<T>): Kind<T | W> {
  return {
    accepts: `\`${word}\` or ${kind.accepts}`,
    read(text) {
      const value = text === word ? word : kind.read(text)
      if (!(value instanceof Refused)) return value
      const faults = value.faults.map((fault) => `${fault} (or \`${word}\` alone)`)
      return new Refused(faults, value.sound)
    },
  }
}

/** An account code, as a path segment of the resource server. */
export const WAC = matching(
  WAC_PATTERN,
  'an account code (1 to 64 of `A-Z a-z 0-9 _ . ~ -`, not `.` or `..`)',
)

/** One flux of one account. */
export const WAC_AND_FLUX = printable('of the form `wac/fluxId`', (text) => {
  const [wac = '', fluxId = '', ...more] = text.split('/')
  return WAC_PATTERN.test(wac) && ID.test(fluxId) && more.length === 0 ? text : undefined
})

/** Scope tokens, RFC 6749 section 3.3. */
export const SCOPE = matching(
  /^[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*$/,
  'one or more scopes separated by single spaces',
)

/** A DNS or container name. RFC 1123 forbids underscores, but Compose uses them. */
export const HOST_NAME_PATTERN = /^(?=.{1,253}$)(?!.*\.\.)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$/

/** A share from 0 to 1. */
export const RATIO = printable('a number from 0 to 1', (text) =>
  /^(?:0(?:\.\d+)?|\.\d+|1(?:\.0+)?)$/.test(text) ? Number(text) : undefined,
)

/** The pairs of `name=value,name=value` with percent-encoded values, as OpenTelemetry writes them; null where malformed. */
export function namedValues(text: string): [name: string, value: string][] | null {
  try {
    const pairs = text.split(',').map((pair): [string, string] => {
      const [, name = '', value = ''] = /^\s*([^\s=]+)\s*=\s*(.*?)\s*$/.exec(pair) ?? []
      return [decodeURIComponent(name), decodeURIComponent(value)]
    })
    return pairs.every(([name]) => name !== '') ? pairs : null
  } catch {
    return null
  }
}

/** Attributes of a resource, kept as text: OpenTelemetry reads them itself, and drops all for one `=` too many. */
export const NAMED_VALUES = printable(
  'a comma-separated list of `name=value`, values percent-encoded',
  (text) =>
    namedValues(text) !== null && text.split(',').every((pair) => pair.split('=').length === 2)
      ? text
      : undefined,
)

/** An address to listen on. */
export const HOST = printable('a host name or an IP address (IPv6 without brackets)', (text) =>
  isIP(text) !== 0 || HOST_NAME_PATTERN.test(text) ? text : undefined,
)

/**
 * A peer or a network of peers. Refused: a prefix length of 0 and `true`, which trust everyone; hop counts, which
 * trust any client that reaches the port; names, which depend on DNS.
 */
export const NETWORK = printable(
  'an IP address or a CIDR such as `10.0.0.0/8`, with a prefix of at least 1',
  (text) => {
    const [, address = '', prefix = null] = /^([0-9A-Fa-f.:]+)(?:\/(\d{1,3}))?$/.exec(text) ?? []
    const family = isIP(address)
    if (family === 0) return undefined
    if (prefix === null) return text
    return Number(prefix) >= 1 && Number(prefix) <= (family === 4 ? 32 : 128) ? text : undefined
  },
)

/**
 * Every fault of a URL, and the URL without its user name, query and fragment; null where there is none. Text that may
 * hold credentials is never printed.
 */
export function readUrl(text: string): { readonly url: URL | null; readonly faults: string[] } {
  const faults: string[] = []
  const at = text.lastIndexOf('@')
  if (at >= 0) faults.push('must not hold an @ (no user name or password)')
  // A password may hold anything: what follows is about the text without it.
  const bare = at < 0 ? text : `${/^https?:\/\//i.exec(text)?.[0] ?? ''}${text.slice(at + 1)}`
  if (/[?#]/.test(bare)) faults.push('must not have a query or a fragment')
  // The URL parser drops tabs and newlines, turns `\` into `/` and accepts `https:host`: all are mistakes here.
  const plain = /^https?:\/\/[^/]/i.test(bare) && !/[\s\\]/.test(bare)
  const url = plain && URL.canParse(bare) ? new URL(bare.replace(/[?#].*/s, '')) : null
  if (url === null) {
    const shown = faults.length === 0 ? `, but is ${quoted(text)}` : ''
    faults.push(`must be a URL that begins with https:// (or http://)${shown}`)
  }
  return { url, faults }
}

/** A URL in its normal form, without one trailing slash. */
export const ADDRESS: Kind<string> = {
  accepts: 'a URL without user name, query and fragment',
  read(text) {
    const { url, faults } = readUrl(text)
    const address = url?.href.replace(/\/$/, '')
    return address === undefined || faults.length > 0 ? new Refused(faults, address) : address
  },
}

/** Scheme, host and port, as a browser writes them in `Origin` (RFC 6454 section 6.2). */
export const ORIGIN: Kind<string> = {
  accepts: 'an origin: a URL without a path',
  read(text) {
    const { url, faults } = readUrl(text)
    if (url !== null && url.pathname !== '/')
      faults.push(`must have no path${faults.length > 0 ? '' : `, but is ${quoted(text)}`}`)
    return url === null || faults.length > 0 ? new Refused(faults, url?.origin) : url.origin
  },
}

/** Whether a URL is http and its host is not loopback. */
export function isInsecure(address: string): boolean {
  return new URL(address).protocol === 'http:' && !isLoopback(address)
}

/** Whether the host of a URL is loopback: `localhost` and names under it (RFC 6761), 127/8, ::1. */
export function isLoopback(address: string): boolean {
  return /^(?:(?:.+\.)?localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(new URL(address).hostname)
}

/** The file that a page's build must have. */
export const START_PAGE = 'index.html'

/** The directory of a page's build, as an absolute path. */
export const PAGE_BUILD = printable(`a directory with an ${START_PAGE}`, (text) => {
  try {
    return statSync(join(text, START_PAGE)).isFile() ? resolve(text) : undefined
  } catch {
    return undefined
  }
})

/** The text of a file of readable PEM certificates. */
export const CERTIFICATES: Kind<string> = {
  accepts: 'the path of a file of PEM certificates',
  read(path) {
    const text = readText(path)
    if (text instanceof Refused) {
      return new Refused(`must be a file that can be read, but ${quoted(path)} cannot (${text.fault})`)
    }
    const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? []
    return blocks.length > 0 && blocks.every(isCertificate)
      ? text
      : new Refused(
          `must name a file of PEM certificates, but ${quoted(path)} holds none, or one that cannot be read`,
        )
  },
}

/**
 * The text of a file with one readable PEM private key without a passphrase. The path is not printed: it may be the
 * key itself, put there by mistake.
 */
export const PRIVATE_KEY: Kind<Secret> = {
  accepts: 'the path of a file with a PEM private key without a passphrase',
  read(path) {
    const text = readText(path)
    if (text instanceof Refused) {
      return new Refused(`must be a file that can be read, but is not (${text.fault})`)
    }
    return isPrivateKey(text)
      ? new Secret(text)
      : new Refused('must name a file with a PEM private key without a passphrase, but that file holds none')
  },
}

/** The text of a file, or the system's code for the failure, for example `ENOENT`. */
export function readText(path: string): string | Refused {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    return new Refused((error as NodeJS.ErrnoException).code ?? 'unreadable')
  }
}
