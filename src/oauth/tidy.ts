/** Life of an access token when the answer does not say (service document, section 8). */
const DEFAULT_LIFE_SECONDS = 3_600
const MAX_LIFE_SECONDS = 86_400

/**
 * Brings odd optional members of a token answer into the form that openid-client takes: for them it
 * throws the whole answer away, after the authorization server has already rotated the refresh token.
 * null where the text is not a JSON object.
 */
export function tidyTokenAnswer(text: string): string | null {
  const answer = parseObject(text)
  if (answer === null) return null
  const { refresh_token, scope, token_type, expires_in, id_token: _unused, ...rest } = answer
  return JSON.stringify({
    ...rest,
    token_type: token_type === undefined || token_type === null ? 'bearer' : token_type,
    expires_in: lifeSeconds(expires_in),
    ...(typeof refresh_token === 'string' && refresh_token !== '' ? { refresh_token } : {}),
    ...(typeof scope === 'string' ? { scope } : {}),
  })
}

/** Whether a body holds an error code as RFC 6749 section 5.2 has it, whatever type it says it is of. */
export function hasErrorCode(text: string): boolean {
  const error = parseObject(text)?.error
  return typeof error === 'string' && error !== ''
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    // Some servers begin with a byte order mark, which JSON.parse refuses (RFC 8259 section 8.1).
    const value: unknown = JSON.parse(text.replace(/^\ufeff/, ''))
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Record<string, unknown>
  } catch {
    // A web page, or half of an answer.
  }
  return null
}

/**
 * Seconds that an access token lives, from `expires_in` of whatever type: missing or null is an hour,
 * digits in a string are read, above a day is a day, and what is zero, negative or unreadable is 0,
 * due at once.
 */
export function lifeSeconds(expiresIn: unknown): number {
  if (expiresIn === undefined || expiresIn === null) return DEFAULT_LIFE_SECONDS
  const digits = typeof expiresIn === 'string' && /^\d+$/.test(expiresIn)
  const seconds = typeof expiresIn === 'number' || digits ? Number(expiresIn) : 0
  if (!(seconds > 0)) return 0
  return Math.floor(Math.min(seconds, MAX_LIFE_SECONDS))
}
