import { validateHeaderName, validateHeaderValue } from 'node:http'
import { Secret } from '../secret.ts'
import { type Kind, namedValues, Refused, readText } from './kinds.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** The placeholder of `.env.example`. Everyone knows a value that is printed there or in the documentation. */
const PRINTED_SECRETS: ReadonlySet<string> = new Set(['replace-me-with-the-output-of-openssl-rand-base64-48'])

/** The secret of `docker-compose.yml`, for this machine alone. */
export const TRY_OUT_SECRET = 'known-to-everybody-and-only-for-the-try-out'

const MIN_SESSION_SECRET_LENGTH = 32
export const HOW_TO_MAKE_ONE = 'make one with: openssl rand -base64 48'

// Control characters, a byte order mark, and the replacement character of bytes that are not UTF-8.
const UNREADABLE = /[\u0000-\u001f\u007f\ufeff\ufffd]/

/** One secret. A line break or another control character means that a file was saved wrongly. */
export const SECRET: Kind<Secret> = {
  accepts: 'text without line breaks or other control characters',
  read: (text) =>
    UNREADABLE.test(text)
      ? new Refused('must not hold line breaks or other control characters')
      : new Secret(text),
}

/** Header fields that hold credentials. `namedValues` reads the text. */
export const SECRET_HEADERS: Kind<Secret> = {
  accepts: 'a comma-separated list of `name=value`, each a header field, values percent-encoded',
  read: (text) =>
    areHeaders(text)
      ? new Secret(text)
      : new Refused(
          'must be a comma-separated list of name=value, each a header field, values percent-encoded',
        ),
}

function areHeaders(text: string): boolean {
  const fields = namedValues(text)
  if (fields === null) return false
  try {
    for (const [name, value] of fields) {
      validateHeaderName(name)
      validateHeaderValue(name, value)
    }
    return true
  } catch {
    return false
  }
}

/** The secrets that sign and seal, the current one first. */
export const SESSION_SECRETS: Kind<readonly Secret[]> = {
  accepts: `one or more secrets of at least ${MIN_SESSION_SECRET_LENGTH} characters, comma-separated`,
  read(text) {
    if (UNREADABLE.test(text)) return new Refused('must not hold line breaks or other control characters')
    const values = text.split(',').map((part) => part.trim())
    const faults = values.flatMap((value, index) => {
      const which = values.length === 1 ? '' : ` (secret ${index + 1} of ${values.length})`
      if (PRINTED_SECRETS.has(value))
        return [`is the placeholder of .env.example, which everyone knows${which}; ${HOW_TO_MAKE_ONE}`]
      if ([...value].length < MIN_SESSION_SECRET_LENGTH)
        return [`needs at least ${MIN_SESSION_SECRET_LENGTH} characters${which}; ${HOW_TO_MAKE_ONE}`]
      return values.indexOf(value) === index ? [] : [`holds the same secret twice${which}`]
    })
    const secrets = values.map((value) => new Secret(value))
    return faults.length > 0 ? new Refused(faults, secrets) : secrets
  },
}

/** Why a secret looks badly copied, without its value; null where it does not. Completes the sentence "NAME …". */
export function copyFault(text: string): string | null {
  const trimmed = text.trim()
  if (/^(["']).*\1$/.test(trimmed)) {
    return 'begins and ends with a quote (some env files keep quotes): remove both unless they are part of the secret'
  }
  return trimmed === text ? null : 'begins or ends with a blank: remove it unless it is part of the secret'
}

/** Variables that other programs read too, in lower case first. */
export const EITHER_CASE: ReadonlySet<string> = new Set(['HTTPS_PROXY', 'HTTP_PROXY', 'NO_PROXY'])

/**
 * The text of a variable, null when it is unset or empty, or why it cannot be read. A secret may be in the file
 * that `NAME_FILE` names; one trailing newline is dropped. The path is not printed: it may be the secret itself,
 * put there by mistake.
 */
export function readVariableText(env: Environment, name: string, secret: boolean): string | null | Refused {
  const lower = name.toLowerCase()
  const spelling = EITHER_CASE.has(name) && env[lower] ? lower : name
  const direct = env[spelling] || null
  const path = secret ? env[`${name}_FILE`] || null : null
  if (path === null) return direct
  if (direct !== null) return new Refused(`is given twice: as ${spelling} and as ${name}_FILE`)
  const text = readText(path)
  if (text instanceof Refused)
    return new Refused(`cannot be read from the file that ${name}_FILE names (${text.fault})`)
  return text.replace(/\r?\n$/, '') || new Refused(`is empty in the file that ${name}_FILE names`)
}
