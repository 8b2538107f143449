import type { Accounts } from './accounts.ts'
import type { Authorizations } from './authorizations.ts'
import { refusalPage, signInPage } from './authorize-page.ts'
import type { FaultSwitches } from './faults.ts'
import type { SandboxResponse } from './response.ts'
import type { Settings } from './settings.ts'
import type { TokenEndpoint } from './token-endpoint.ts'

interface AuthorizeRequest {
  flow: 'code' | 'token'
  redirectUri: string
  scope: string
  challenge: string | null
  state: string | null
}

export type AuthorizeEndpoint = ReturnType<typeof createAuthorizeEndpoint>

/** `GET` and `POST /oauth/authorize` (document sections 4.1 and 5.4), as functions that return a response. */
export function createAuthorizeEndpoint({
  settings,
  accounts,
  authorizations,
  faults,
  tokens,
  ownAddress,
}: {
  settings: Settings
  accounts: Accounts
  authorizations: Authorizations
  faults: FaultSwitches
  tokens: TokenEndpoint
  ownAddress: () => string
}) {
  /** The parsed request, or the response that refuses it. */
  function read(query: URLSearchParams): AuthorizeRequest | SandboxResponse {
    const repeated = (name: string) => query.getAll(name).length > 1
    const redirectUri = query.get('redirect_uri') ?? ''
    if (query.get('client_id') !== settings.client.clientId || repeated('client_id')) {
      return refusalPage('The application is not known here.', 'bad_client')
    }
    if (repeated('redirect_uri') || !accounts.isRedirectUri(redirectUri, faults.current().exactRedirect)) {
      return refusalPage('The address to return to does not belong to the application.', 'bad_redirect_uri')
    }
    const responseType = query.get('response_type')
    const flow = responseType === 'token' ? 'token' : 'code'
    const back = { flow, redirectUri, state: query.get('state') } as const
    const challenge = query.get('code_challenge')

    if ([...query.keys()].some(repeated)) return redirectBack(back, { error: 'invalid_request' })
    if (responseType === null) return redirectBack(back, { error: 'invalid_request' })
    if (responseType !== flow) return redirectBack(back, { error: 'unsupported_response_type' })
    const scope = accounts.grantedScope(query.get('scope') ?? undefined, ownAddress())
    if (scope === null) return redirectBack(back, { error: 'invalid_scope' })
    const isS256 =
      query.get('code_challenge_method') === 'S256' && /^[A-Za-z0-9_-]{43}$/.test(challenge ?? '')
    if (challenge !== null && faults.current().pkce === 'honour' && !isS256) {
      return redirectBack(back, { error: 'invalid_request', error_description: 'only S256 is supported' })
    }
    return { ...back, scope, challenge }
  }

  /** 302 to the client: in the query for the code flow, in the fragment for the token flow. */
  function redirectBack(
    { flow, redirectUri, state }: Pick<AuthorizeRequest, 'flow' | 'redirectUri' | 'state'>,
    members: Record<string, string>,
  ): SandboxResponse {
    const { state: echo, issuer } = faults.current()
    const params = new URLSearchParams(members)
    if (echo === 'wrong') params.set('state', 'not-the-state-that-was-sent')
    if (echo === 'echo' && state !== null) params.set('state', state)
    if (issuer !== null) params.set('iss', issuer)
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
    const { redirectUri, challenge, scope } = request
    const authorization = authorizations.open(username, scope)
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
    show(query: URLSearchParams): SandboxResponse {
      const request = read(query)
      return 'outcome' in request ? request : showPage(request, null)
    },

    /** What the form sends: `username`, `password`, `decision` = `accept` or `refuse`. */
    decide(query: URLSearchParams, form: URLSearchParams): SandboxResponse {
      const request = read(query)
      if ('outcome' in request) return request
      if (form.get('decision') === 'refuse') return redirectBack(request, { error: 'access_denied' })
      if (form.get('decision') !== 'accept') return showPage(request, null)
      const user = accounts.signIn(form.get('username') ?? '', form.get('password') ?? '')
      if (user === null) return showPage(request, form.get('username') ?? '')
      return { ...grant(request, user.username), username: user.username }
    },
  }
}
