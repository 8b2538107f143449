import type { Config } from '../src/config/config.ts'
import { additionTo } from './addition.ts'
import { inAscii } from './in-ascii.ts'

const OF_THE_REQUEST = /^(invalid_request|invalid_scope|unauthorized_client|unsupported_response_type)$/

/** Why the authorization server sent the browser back without a code. */
export interface Objection {
  /** The request itself is refused (RFC 6749 section 4.1.2.1). Other errors say that nobody is signed in, or is refused. */
  readonly isOfTheRequest: boolean
  /** Code and description, in ASCII. */
  readonly words: string
  readonly remedy: string
  /** A line for the environment, or null. */
  readonly setting: string | null
}

/** The error at the callback, with what to do about it. Null without one. */
export function objectionIn(params: URLSearchParams, oauth: Config['oauth']): Objection | null {
  const error = params.get('error')
  if (error === null) return null
  const code = /^[a-z_]{1,64}$/.test(error) ? error : 'an unreadable error code'
  const description = inAscii(params.get('error_description') ?? '').slice(0, 200)
  const words = `${code}${description === '' ? '' : `, "${description}"`}`
  const needsNonce = /\bnonce\b/i.test(description) && !hasParameter(oauth, 'nonce')
  const isOfTheRequest = OF_THE_REQUEST.test(code)
  if (!needsNonce) return { isOfTheRequest, words, remedy: remedyOf(code, oauth), setting: null }
  const nonce = additionTo('OAUTH_AUTHORIZE_PARAMS', 'nonce={random}', oauth.authorizeParameters)
  return { isOfTheRequest, words, remedy: `it needs a nonce${nonce.words}`, setting: nonce.setting }
}

/** Whether each authorization request has this parameter, besides those of OAuth. */
export function hasParameter(
  { authorizeParameters, authorizeUrl }: Pick<Config['oauth'], 'authorizeParameters' | 'authorizeUrl'>,
  sought: string,
): boolean {
  return (
    authorizeParameters.some(({ name }) => name === sought) || new URL(authorizeUrl).searchParams.has(sought)
  )
}

function remedyOf(error: string, { pkce }: Config['oauth']): string {
  switch (error) {
    case 'invalid_scope':
      return 'check OAUTH_SCOPE and BASE_URL'
    case 'unsupported_response_type':
    case 'unauthorized_client':
      return 'check OAUTH_FLOWS, and which flows the client of CLIENT_ID may use'
    case 'invalid_request':
      return pkce
        ? 'check OAUTH_AUTHORIZE_PARAMS, OAUTH_PKCE and OAUTH_REDIRECT'
        : 'the server may demand PKCE: remove OAUTH_PKCE=off'
    case 'access_denied':
      return 'check OAUTH_SCOPE: it may name no scope that this client has'
    default:
      return 'check CLIENT_ID and PUBLIC_URL'
  }
}
