import type { Accounts } from './accounts.ts'
import type { Answers } from './answers.ts'
import type { Authorizations } from './authorizations.ts'
import { refusalPage, signedOutPage, signInPage } from './authorize-page.ts'
import type { FaultSwitches } from './faults.ts'
import type { AnswerName, Stage } from './profile.ts'
import type { SandboxResponse } from './response.ts'
import type { Settings } from './settings.ts'
import type { TokenEndpoint } from './token-endpoint.ts'

interface AuthorizeRequest {
  flow: 'code' | 'token'
  redirectUri: string
  scope: string
  /** Whether tokens of it can be refreshed. */
  isRefreshable: boolean
  challenge: string | null
  state: string | null
}

const STAGES: readonly Stage[] = ['request', 'page', 'sign-in']

/** Below the issuer, where a profile redirects to its sign-in page. */
export const SIGN_IN_PATH = '/sign-in'

export type AuthorizeEndpoint = ReturnType<typeof createAuthorizeEndpoint>

/** `GET` and `POST /oauth/authorize` (document sections 4.1 and 5.4), as functions that return a response. */
export function createAuthorizeEndpoint({
  settings,
  accounts,
  authorizations,
  faults,
  tokens,
  answers,
  ownAddress,
  issuer,
}: {
  settings: Settings
  accounts: Accounts
  authorizations: Authorizations
  faults: FaultSwitches
  tokens: TokenEndpoint
  answers: Answers
  ownAddress: () => string
  issuer: () => string
}) {
  const { profile } = settings

  /** The parsed request, or the response that refuses it at this stage of the sign-in. */
  function read(query: URLSearchParams, stage: Stage): AuthorizeRequest | SandboxResponse {
    const isTime = (refusedAt: Stage = 'request') => STAGES.indexOf(stage) >= STAGES.indexOf(refusedAt)
    const repeated = (name: string) => query.getAll(name).length > 1
    const redirectUri = query.get('redirect_uri') ?? ''
    const challenge = query.get('code_challenge')
    const responseType = query.get('response_type')
    const flow = responseType === 'token' ? 'token' : 'code'
    const back = { flow, redirectUri, state: query.get('state') } as const
    const asked = query.get('scope') ?? undefined
    const isRefreshable = accounts.isRefreshable(asked ?? '', query.get('prompt'))
    const request = { ...back, scope: asked ?? '', isRefreshable, challenge }

    const isClient = query.get('client_id') === settings.client.clientId && !repeated('client_id')
    const isCallback =
      !repeated('redirect_uri') && accounts.isRedirectUri(redirectUri, faults.current().exactRedirect)
    const { pkce, nonce, promptNone, database } = faults.current()
    if (database === 'away' && answers.authorize('authorize: database away') !== null)
      return page('authorize: database away', 'The database cannot be reached.', 'fault')
    const isSilent = query.get('prompt') === 'none'
    if (isSilent && promptNone === 'refuse-anywhere') return redirectBack(back, { error: 'login_required' })
    if (!isClient || !isCallback) {
      if (!isTime(profile?.signIn.refusesCallback)) return request
      return isClient
        ? page(
            'authorize: callback',
            'The address to return to does not belong to the application.',
            'bad_redirect_uri',
          )
        : page('authorize: client', 'The application is not known here.', 'bad_client')
    }

    if ([...query.keys()].some(repeated)) return redirectBack(back, { error: 'invalid_request' })
    if (responseType === null) return redirectBack(back, { error: 'invalid_request' })
    if (responseType !== flow) return redirectBack(back, { error: 'unsupported_response_type' })
    if (isSilent && promptNone === 'refuse') return redirectBack(back, { error: 'login_required' })
    const isChecked = isSilent && promptNone === 'check'
    if (!isChecked && !isTime(profile?.signIn.refusesScope)) return request
    const scope = accounts.grantedScope(asked, ownAddress())
    if (scope === null) return refuse(back, 'authorize: scope', 'invalid_scope')
    const isS256 =
      query.get('code_challenge_method') === 'S256' && /^[A-Za-z0-9_-]{43}$/.test(challenge ?? '')
    if (challenge !== null && pkce !== 'ignore' && !isS256) {
      return redirectBack(back, { error: 'invalid_request', error_description: 'only S256 is supported' })
    }
    if (challenge === null && pkce === 'require' && flow === 'code')
      return refuse(back, 'authorize: no challenge', 'invalid_request')
    if (nonce === 'required' && scope.split(' ').includes('openid') && !query.has('nonce'))
      return refuse(back, 'authorize: no nonce', 'invalid_request')
    if (isChecked) return redirectBack(back, { error: 'login_required' })
    return { ...request, scope }
  }

  function page(name: AnswerName, reason: string, outcome: string): SandboxResponse {
    const answer = answers.authorize(name)
    return answer === null || 'back' in answer ? refusalPage(reason, outcome) : { ...answer, outcome }
  }

  /** The refusal of a request whose callback is good, as the profile words it. */
  function refuse(
    back: Parameters<typeof redirectBack>[0],
    name: AnswerName,
    error: string,
  ): SandboxResponse {
    const answer = answers.authorize(name)
    if (answer === null) return redirectBack(back, { error })
    return 'back' in answer ? redirectBack(back, { ...answer.back }) : answer
  }

  /** 302 to the client: in the query for the code flow, in the fragment for the token flow. */
  function redirectBack(
    { flow, redirectUri, state }: Pick<AuthorizeRequest, 'flow' | 'redirectUri' | 'state'>,
    members: Record<string, string>,
  ): SandboxResponse {
    const { state: echo, issuer: iss } = faults.current()
    const params = new URLSearchParams({ ...members, ...(members.error ? {} : profile?.signIn.back) })
    if (echo === 'wrong') params.set('state', 'not-the-state-that-was-sent')
    if (echo === 'echo' && state !== null) params.set('state', state)
    if (iss !== null) params.set('iss', iss.replaceAll('{issuer}', issuer()))
    const separator = flow === 'token' ? '#' : redirectUri.includes('?') ? '&' : '?'
    return {
      status: 302,
      headers: {
        location: `${redirectUri}${separator}${params}`,
        'cache-control': 'no-store',
        'referrer-policy': 'no-referrer',
      },
      body: Buffer.alloc(0),
      outcome: members.error ?? 'granted',
    }
  }

  function grant(request: AuthorizeRequest, username: string): SandboxResponse {
    const { authorizeError } = faults.current()
    if (authorizeError !== null) return redirectBack(request, { error: authorizeError })
    const { redirectUri, challenge, scope, isRefreshable } = request
    const authorization = authorizations.open(username, scope, { isRefreshable })
    if (request.flow === 'token') {
      const wire = Object.entries(tokens.tokenResponse(authorization, 'none'))
      const inFragment = wire.filter(([name]) => name !== 'callback')
      return redirectBack(
        request,
        Object.fromEntries(inFragment.map(([name, value]) => [name, String(value)])),
      )
    }
    const expiresAt = settings.now() + settings.codeLifeSeconds * 1000
    const code = authorizations.issueCode({ authorization, redirectUri, challenge, expiresAt })
    return redirectBack(request, { code })
  }

  function showPage(request: AuthorizeRequest, failedUsername: string | null): SandboxResponse {
    const { clientId } = settings.client
    return signInPage({ ...request, clientId, users: settings.users, failedUsername })
  }

  return {
    /**
     * Where users sign out (OpenID Connect RP-Initiated Logout 1.0): sends the browser back. This server keeps no
     * sign-in in the browser, so none is left to end: each sign-in asks for the password.
     */
    endSession(query: URLSearchParams): SandboxResponse {
      const back = query.get('post_logout_redirect_uri') ?? ''
      const isClient = query.get('client_id') === settings.client.clientId
      if (!isClient || !accounts.isSignedOutUri(back)) return signedOutPage()
      const headers = { location: new URL(back).href, 'cache-control': 'no-store' }
      return { status: 302, headers, body: Buffer.alloc(0), outcome: 'signed_out' }
    },

    /** The first request. */
    show(query: URLSearchParams): SandboxResponse {
      const request = read(query, 'request')
      if ('outcome' in request) return request
      if (profile?.signIn.redirects !== true) return showPage(request, null)
      const location = `${issuer()}${SIGN_IN_PATH}?${query}`
      return { status: 302, headers: { location }, body: Buffer.alloc(0), outcome: 'to_page' }
    },

    /** The page that some servers redirect to. */
    showSignIn(query: URLSearchParams): SandboxResponse {
      const request = read(query, 'page')
      return 'outcome' in request ? request : showPage(request, null)
    },

    /** What the form sends: `username`, `password`, `decision` = `accept` or `refuse`. */
    decide(query: URLSearchParams, form: URLSearchParams): SandboxResponse {
      const shown = read(query, 'page')
      if ('outcome' in shown) return shown
      const isRefusal = form.get('decision') === 'refuse'
      if (!isRefusal && form.get('decision') !== 'accept') return showPage(shown, null)
      const user = accounts.signIn(form.get('username') ?? '', form.get('password') ?? '')
      if (!isRefusal && user === null) return showPage(shown, form.get('username') ?? '')
      const request = read(query, 'sign-in')
      if ('outcome' in request) return request
      if (user === null || isRefusal)
        return refuse(request, 'authorize: refused by the user', 'access_denied')
      return { ...grant(request, user.username), username: user.username }
    },
  }
}
