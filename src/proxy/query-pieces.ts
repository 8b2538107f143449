import { problem } from '../errors.ts'

export interface QueryPiece {
  /** Decoded. */
  name: string
  value: string
  /** As it came, safe to put into a request target. */
  raw: string
}

/** The parameters of a query, each decoded and as it came; a malformed one is 400. */
export function queryPieces(url: string): QueryPiece[] {
  const at = url.indexOf('?')
  if (at < 0 || at === url.length - 1) return []
  return url
    .slice(at + 1)
    .split('&')
    .filter((raw) => raw !== '')
    .map((raw) => {
      const [name, value] = split(raw)
      // Some servers part parameters at semicolons: encoded, none can hide another from us.
      return { name: decode(name), value: decode(value), raw: raw.replaceAll(';', '%3B') }
    })
}

function split(raw: string): [string, string] {
  const at = raw.indexOf('=')
  return at < 0 ? [raw, ''] : [raw.slice(0, at), raw.slice(at + 1)]
}

function decode(text: string): string {
  if (/[^\x21-\x7e]|#/.test(text))
    throw problem('invalid_request', 'The query holds a character that must be encoded.')
  try {
    return decodeURIComponent(text.replaceAll('+', ' '))
  } catch {
    throw problem('invalid_request', 'The query holds a percent sign that encodes nothing.')
  }
}
