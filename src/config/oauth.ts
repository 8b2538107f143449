import { type Kind, listOf, quoted, Refused, readUrl } from './kinds.ts'

/** Parameters of the authorization request that this server sets itself (RFC 6749 section 4.1.1, RFC 7636 section 4.3). */
const OF_AUTHORIZATION =
  /^(?:response_type|client_id|redirect_uri|scope|state|code_challenge|code_challenge_method)$/
/** Those of token requests (RFC 6749 sections 2.3.1, 4 and 6, RFC 7636 section 4.5). */
const OF_TOKEN_REQUEST =
  /^(?:grant_type|code|redirect_uri|code_verifier|refresh_token|scope|username|password|client_id|client_secret)$/
/** Those of the request to sign out (OpenID Connect RP-Initiated Logout 1.0 section 2). */
const OF_SIGN_OUT = /^(?:client_id|post_logout_redirect_uri)$/

/** A whole address, kept to the letter: Django's end in a slash, and issuers are compared as strings (RFC 9207 section 2.4). */
export const EXACT_URL: Kind<string> = {
  accepts: 'a URL without user name, query and fragment, kept to the letter',
  read(text) {
    const { url, faults } = readUrl(text)
    return faults.length > 0 ? new Refused(faults, url?.href) : text
  },
}

/** The same with or without a query of its own, which must not have the parameters that this server adds. */
function endpointWithQuery(ownParameters: RegExp): Kind<string> {
  return {
    accepts:
      'a URL without user name and fragment, kept to the letter; its query may have parameters of its own',
    read(text) {
      const at = text.indexOf('?')
      if (at < 0) return EXACT_URL.read(text)
      const { url, faults } = readUrl(text.slice(0, at))
      // The ? may be part of a password.
      if (url === null && text.includes('@')) return EXACT_URL.read(text)
      const query = text.slice(at + 1)
      if (!/^[\x21\x24-\x7e]*$/.test(query))
        faults.push('must have a query of visible ASCII, percent-encoded, and no fragment')
      const own = [...new URLSearchParams(query).keys()].filter((name) => ownParameters.test(name))
      const sound = faults.length === 0 ? text : url?.href
      for (const name of own)
        faults.push(`must not have the parameter ${name} in its query: this server sets it`)
      return faults.length > 0 ? new Refused(faults, sound) : text
    },
  }
}

export const AUTHORIZATION_ENDPOINT = endpointWithQuery(OF_AUTHORIZATION)
export const TOKEN_ENDPOINT = endpointWithQuery(OF_TOKEN_REQUEST)
export const END_SESSION_ENDPOINT = endpointWithQuery(OF_SIGN_OUT)

/** `address` with these parameters behind those of its own query. */
export function withParameters(address: string, parameters: URLSearchParams): string {
  const begins = !address.includes('?')
  return `${address}${begins ? '?' : /[?&]$/.test(address) ? '' : '&'}${parameters}`
}

/** A further parameter of each authorization request. */
export interface AuthorizeParameter {
  readonly name: string
  /** null: 128 random bits for each sign-in. */
  readonly value: string | null
}

const MAX_PARAMETERS = 16
const RANDOM = '{random}'

/** Further parameters of the authorization request, written as a query string. */
export const AUTHORIZE_PARAMETERS: Kind<readonly AuthorizeParameter[]> = {
  accepts: `at most ${MAX_PARAMETERS} parameters as a query string such as \`prompt=consent&nonce=${RANDOM}\`; the value \`${RANDOM}\` is random for each sign-in`,
  read(text) {
    if (!/^[\x21\x24-\x7e]+$/.test(text) || text.split('&').some((pair) => !/^[^=?]+=/.test(pair)))
      return new Refused(`must be ${AUTHORIZE_PARAMETERS.accepts}, but is ${quoted(text)}`)
    const pairs = [...new URLSearchParams(text)]
    const names = pairs.map(([name]) => name)
    const faults = [
      ...(names.length > MAX_PARAMETERS ? [`must have at most ${MAX_PARAMETERS} parameters`] : []),
      ...names
        .filter((name) => OF_AUTHORIZATION.test(name))
        .map((name) => `must not set ${name}: this server does`),
      ...names
        .filter((name, at) => names.indexOf(name) !== at)
        .map((name) => `has the parameter ${quoted(name)} twice`),
    ]
    const added = pairs.map(([name, value]) => ({ name, value: value === RANDOM ? null : value }))
    return faults.length > 0 ? new Refused(faults, added) : added
  },
}

/** A further answer of the token endpoint that means: this refresh token is dead. */
export interface RefusedGrant {
  readonly status: number
  /** The OAuth error code; null: the answer has no body. */
  readonly code: string | null
}

const SHAPE = /^(\d{3}):([a-z_]{1,64})$/
/** They say nothing of the grant: a wrong secret would sign out every user. */
const OF_THE_CLIENT = /^(?:invalid_client|unauthorized_client)$/

const REFUSED_GRANT: Kind<RefusedGrant> = {
  accepts:
    '`STATUS:CODE` or `STATUS:empty`: a status from 400 to 499 but 429, and an OAuth error code of 1 to 64 of `a-z _`, or `empty` for an answer without a body',
  read(text) {
    const [, digits, word = ''] = SHAPE.exec(text) ?? []
    const status = Number(digits)
    if (digits === undefined) return new Refused(`must be ${REFUSED_GRANT.accepts}, but is ${quoted(text)}`)
    if (status < 400 || status > 499 || status === 429)
      return new Refused(
        `must have a status from 400 to 499 but 429, but is ${quoted(text)}: no other status says that the grant is refused`,
      )
    if (OF_THE_CLIENT.test(word))
      return new Refused(
        `must not name ${word}, but is ${quoted(text)}: it is about CLIENT_ID and CLIENT_SECRET, and a wrong secret would end every session`,
      )
    return { status, code: word === 'empty' ? null : word }
  },
}

/** The further answers that mean a dead refresh token. */
export const REFUSED_GRANTS = listOf(REFUSED_GRANT)
