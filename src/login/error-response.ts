import type { FastifyRequest } from 'fastify'
import { requestInLog } from '../log.ts'
import { StoreUnavailable } from '../vault/vault.ts'
import type { LoginOptions } from './context.ts'
import { browserOf } from './sign-in.ts'

/**
 * The user refused, or has to do something first and did not. OpenID Connect Core section 3.1.2.6 has its own words for
 * it: LemonLDAP::NG says `consent_required`.
 */
const OF_THE_USER: ReadonlySet<string> = new Set([
  'access_denied',
  'consent_required',
  'interaction_required',
  'login_required',
  'account_selection_required',
])

/**
 * Logs and counts an authorization response that is an error (RFC 6749 sections 4.1.2.1 and 4.2.2.1). Returns the value
 * of `login_error` for the page; undefined where the page is not to be told: the browser has signed in meanwhile, in
 * another tab. Some servers keep one sign-in a browser, and answer the other tabs with an error.
 */
export async function noteErrorResponse(
  services: Pick<LoginOptions, 'cookies' | 'log' | 'observe' | 'vault'>,
  request: FastifyRequest,
  error: string,
): Promise<string | undefined> {
  const { cookies, log, observe } = services
  // The browser brings it, so it is shown only where it has the form of a code.
  const code = /^[a-z_]{1,64}$/.test(error) ? error : 'other'
  const line = { event: 'login.refused', ...browserOf(request, cookies), error: code }
  if (OF_THE_USER.has(error)) {
    log.info(line, 'the user did not accept the sign-in')
    observe.signInFailed('refused')
    return 'access_denied'
  }
  if (await isSignedIn(services, request)) {
    log.info(line, 'the authorization server sent an error to a browser that has signed in meanwhile')
    return undefined
  }
  log.warn(line, `the authorization server refused a sign-in${remedyOf(code)}`)
  observe.signInFailed('server_error')
  return error === 'temporarily_unavailable' ? error : 'server_error'
}

/** Whether this browser has a live session. While the store is away it counts as none. */
async function isSignedIn(
  { cookies, vault }: Pick<LoginOptions, 'cookies' | 'vault'>,
  request: FastifyRequest,
): Promise<boolean> {
  const key = cookies.recordKeyIn(request)
  if (key === null) return false
  try {
    return (await vault.look(key, requestInLog(request))).kind === 'live'
  } catch (error) {
    if (error instanceof StoreUnavailable) return false
    throw error
  }
}

function remedyOf(code: string): string {
  switch (code) {
    case 'invalid_scope':
      return ': check OAUTH_SCOPE'
    case 'unauthorized_client':
    case 'unsupported_response_type':
      return ': permit the flow of OAUTH_FLOWS to this client there'
    case 'invalid_request':
      return ': check OAUTH_PKCE, OAUTH_REDIRECT and OAUTH_AUTHORIZE_PARAMS. The doctor with --live shows its reason'
    default:
      return ''
  }
}
