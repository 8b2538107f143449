import { type Kind, quoted, Refused } from './kinds.ts'

/** Parsed, or what is wrong with it. Text that may hold credentials or keys is never printed. */
function parse(text: string): URL | Refused {
  if (text.includes('@')) return new Refused('must not hold an @ (no user name or password)')
  if (/[?#]/.test(text)) return new Refused('must not have a query or a fragment')
  // The URL parser drops tabs and newlines, turns `\` into `/` and takes `https:host`: all of them are slips here.
  const plain = /^https?:\/\/[^/]/i.test(text) && !/[\s\\]/.test(text)
  if (plain && URL.canParse(text)) return new URL(text)
  return new Refused(`must be a URL that begins with https:// (or http://), but is ${quoted(text)}`)
}

/** An absolute address in its normal form, less one trailing slash. */
export const ADDRESS: Kind<string> = {
  accepts: 'a URL without user name, query and fragment',
  read(text) {
    const url = parse(text)
    return url instanceof Refused ? url : url.href.replace(/\/$/, '')
  },
}

/** Scheme, host and port, as a browser writes them in `Origin` (RFC 6454 section 6.2). */
export const ORIGIN: Kind<string> = {
  accepts: 'an origin: a URL without a path',
  read(text) {
    const url = parse(text)
    if (url instanceof Refused) return url
    return url.pathname === '/' ? url.origin : new Refused(`must have no path, but is ${quoted(text)}`)
  },
}

/** Kept to the letter: RFC 9207 section 2.4 compares issuers as strings, and some end in a slash. */
export const ISSUER: Kind<string> = {
  accepts: 'a URL without user name, query and fragment, kept to the letter',
  read(text) {
    const url = parse(text)
    return url instanceof Refused ? url : text
  },
}

/** Whether this URL is http and its host is not this machine: `localhost`, RFC 6761 names under it, 127/8, ::1. */
export function isInsecure(address: string): boolean {
  const { protocol, hostname } = new URL(address)
  return protocol === 'http:' && !/^(?:(?:.+\.)?localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname)
}
