import { isIP } from 'node:net'
import { isFluxId, WAC as WAC_PATTERN } from '../paths.ts'

/** The answer of a reader to a text that it does not take: completes the sentence "NAME …". */
export class Refused {
  readonly problem: string

  constructor(problem: string) {
    this.problem = problem
  }
}

/** One kind of value: what it accepts, in words, and how a text is read. */
export interface Kind<T> {
  /** Completes the sentence "NAME must be …"; the documentation uses it too. */
  readonly accepts: string
  read(text: string): T | Refused
}

/** A value for a message: quoted, so that stray blanks show, and not endless. */
export function quoted(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text)
}

/** A kind whose refusal prints the value: not for secrets. `read` answers undefined to refuse. */
export function printable<T>(accepts: string, read: (text: string) => T | undefined): Kind<T> {
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

/** A comma-separated list; blanks around an entry do not count, an empty entry is refused. */
export function listOf<T>(entry: Kind<T>): Kind<readonly T[]> {
  return {
    accepts: `a comma-separated list, each ${entry.accepts}`,
    read(text) {
      const values: T[] = []
      for (const [index, part] of text.split(',').entries()) {
        const value = part.trim() === '' ? new Refused('is empty') : entry.read(part.trim())
        if (value instanceof Refused)
          return new Refused(`has a faulty entry: number ${index + 1} ${value.problem}`)
        values.push(value)
      }
      return values
    },
  }
}

/** The same value in another form. */
export function mapped<T, U>(kind: Kind<T>, change: (value: T) => U): Kind<U> {
  return {
    accepts: kind.accepts,
    read(text) {
      const value = kind.read(text)
      return value instanceof Refused ? value : change(value)
    },
  }
}

/** A kind or one fixed word. */
export function orWord<T, const W extends string>(word: W, kind: Kind<T>): Kind<T | W> {
  return {
    accepts: `\`${word}\` or ${kind.accepts}`,
    read(text) {
      const value = text === word ? word : kind.read(text)
      return value instanceof Refused ? new Refused(`${value.problem} (\`${word}\` may stand alone)`) : value
    },
  }
}

/** An account code, as a path segment of the resource server. */
export const WAC = matching(WAC_PATTERN, 'an account code (1 to 64 of `A-Z a-z 0-9 _ -`)')

/** One flux of one account. */
export const WAC_AND_FLUX = printable('of the form `wac/fluxId`', (text) => {
  const [wac = '', fluxId = '', ...more] = text.split('/')
  return WAC_PATTERN.test(wac) && isFluxId(fluxId) && more.length === 0 ? text : undefined
})

/** Scope tokens, RFC 6749 section 3.3. */
export const SCOPE = matching(
  /^[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*$/,
  'one or more scopes with one blank between them',
)

/** A DNS or container name; underscores are no host names by RFC 1123, yet Compose makes them. */
export const HOST_NAME_PATTERN = /^(?=.{1,253}$)(?!.*\.\.)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$/

/** An address to listen on. */
export const HOST = printable('a host name or an IP address (IPv6 without brackets)', (text) =>
  isIP(text) !== 0 || HOST_NAME_PATTERN.test(text) ? text : undefined,
)

/**
 * A peer or a network of peers. A prefix length of 0 is refused: it would believe everyone, as `true` would;
 * so are hop counts, which believe whoever reaches the port, and names, which DNS decides.
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
