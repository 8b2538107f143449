import type { Faults } from './faults.ts'
import type { Profile, RecordedAnswer } from './profile.ts'

/** Plausible readings of the service's document, each as the switches that differ from the sandbox without a profile. */
export const READINGS: Readonly<Record<string, Partial<Faults>>> = {
  /** Everything ends early, and an invalid token has a code of the platform's own. */
  strict: { rotateAccess: true, refreshReuse: 'revoke', invalidToken: 'code400', expiresIn: 'absent' },
  /** PUT replaces: an absent member loses its value. */
  replace: { absentMembers: 'clear', invalidToken: 'bare401' },
  /** "A token is unique for one user and one client." */
  'one-grant': { oneGrantPerUser: true },
  /** A refresh leaves the refresh token as it is. */
  'no-rotation': { sameRefreshToken: true, refreshReuse: 'allow' },
  /** What is sent comes back: `state`. */
  echo: { state: 'echo', invalidToken: 'json400' },
}

/** What all measured servers have in common: `state` comes back, the callback is compared to the letter, no member is this platform's. */
const USUAL: Partial<Faults> = {
  state: 'echo',
  exactRedirect: true,
  clientAuth: 'any',
  codeReuse: 'refuse',
  refreshReuse: 'refuse',
  tokenAnswer: { set: { token_type: 'Bearer' }, remove: ['callback'] },
}

const JSON_TYPE = { 'content-type': 'application/json' }
const NO_STORE = { 'cache-control': 'no-store', pragma: 'no-cache' }
const HTML = { 'content-type': 'text/html; charset=utf-8' }

/** An error of RFC 6749 section 5.2. */
function refusal(status: number, error: string, error_description?: string): RecordedAnswer {
  return { status, body: { error, ...(error_description === undefined ? {} : { error_description }) } }
}

/** As Python's `json.dumps` writes it, with blanks. */
function python(status: number, error: string, headers: Record<string, string> = {}): RecordedAnswer {
  return { status, headers, body: `{"error": "${error}"}` }
}

function challenge(status: number, value: string, body = ''): RecordedAnswer {
  return { status, headers: { 'www-authenticate': value }, body }
}

function page(status: number, title: string): RecordedAnswer {
  return { status, headers: HTML, body: `<!doctype html><title>${title}</title><h1>${title}</h1>\n` }
}

/** One answer for each of these names. */
function each<Name extends string>(
  names: readonly Name[],
  answer: RecordedAnswer,
): Record<Name, RecordedAnswer> {
  return Object.fromEntries(names.map((name) => [name, answer])) as Record<Name, RecordedAnswer>
}

const DEAD = [
  'refresh: unknown',
  'refresh: used',
  'refresh: expired',
  'refresh: revoked',
  'refresh: withdrawn',
  'refresh: replayed',
  'refresh: superseded',
  'refresh: account deleted',
] as const
const CODES = ['code: unknown', 'code: used', 'code: verifier'] as const
const TOKENS = ['token: none', 'token: unknown', 'token: expired', 'token: ended'] as const

const DJANGO = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
}
const EMPTY_403: RecordedAnswer = { status: 403, headers: { ...HTML, ...DJANGO } }

const HYDRA_GRANT =
  'The provided authorization grant (e.g., authorization code, resource owner credentials) or refresh token is invalid, expired, revoked, does not match the redirection URI used in the authorization request, or was issued to another client.'
const HYDRA_CLIENT = refusal(
  401,
  'invalid_client',
  'Client authentication failed (e.g., unknown client, no client authentication included, or unsupported authentication method).',
)
const HYDRA_UNAUTHORIZED =
  'The request could not be authorized. Check that you provided valid credentials in the right format.'
const HYDRA_ERROR_PAGE: RecordedAnswer = {
  status: 302,
  headers: { location: '{issuer}/oauth2/fallbacks/error?error=invalid_client' },
}

const SPRING_INACTIVE =
  'Bearer error="invalid_token", error_description="Provided token isn\'t active", error_uri="https://tools.ietf.org/html/rfc6750#section-3.1", resource_metadata="{issuer}/.well-known/oauth-protected-resource"'
const SPRING_LOGIN: RecordedAnswer = { status: 302, headers: { location: '{issuer}/login' } }

function springBack(error: string, parameter: string): RecordedAnswer {
  return {
    back: {
      error,
      error_description: `OAuth 2.0 Parameter: ${parameter}`,
      error_uri: 'https://datatracker.ietf.org/doc/html/rfc6749#section-4.1.2.1',
    },
  }
}

const AUTHLIB_INVALID =
  'The access token provided is expired, revoked, malformed, or invalid for other reasons.'
const AUTHLIB_GUARD = challenge(
  401,
  `Bearer error="invalid_token", error_description="${AUTHLIB_INVALID}"`,
  `{"error": "invalid_token", "error_description": "${AUTHLIB_INVALID}"}`,
)

const AUTHLIB_NO_TOKEN = challenge(
  401,
  'bearer error="missing_authorization", error_description="Missing \'Authorization\' in headers."',
  `{"error": "missing_authorization", "error_description": "Missing 'Authorization' in headers."}`,
)

function authlibClient(methods: string): RecordedAnswer {
  const text = `The client cannot authenticate with methods: [${methods}]`
  return {
    status: 401,
    headers: { 'www-authenticate': `Basic error="invalid_client", error_description="${text}"` },
    body: `{"error": "invalid_client", "error_description": "${text}"}`,
  }
}

const DEX_CLAIMED = refusal(
  400,
  'invalid_request',
  'Refresh token is invalid or has already been claimed by another client.',
)
const DEX_FAILED = refusal(500, 'invalid_request')
const DEX_GUARD = refusal(403, 'access_denied', 'Invalid bearer token.')

function keycloakGuard(description: string): RecordedAnswer {
  return challenge(401, `Bearer realm="REALM", error="invalid_token", error_description="${description}"`)
}

/** Authorization servers as they were measured, each with its own set-up of a client and otherwise its defaults. */
export const PROFILES: Readonly<Record<string, Profile>> = {
  'django-oauth-toolkit': {
    software: 'django-oauth-toolkit',
    version: '1.7.0',
    measuredOn: '2026-11-27',
    special:
      'a bare 403 for every token it refuses, and a 500 at the refresh after the user withdraws access',
    paths: {
      base: '/o',
      authorize: '/o/authorize/',
      token: '/o/token/',
      revoke: '/o/revoke_token/',
    },
    signIn: { redirects: true, refusesCallback: 'sign-in', refusesScope: 'sign-in' },
    scopes: { known: ['read', 'write'], unknown: 'refuse' },
    tokenHeaders: { ...JSON_TYPE, ...NO_STORE, ...DJANGO },
    answers: {
      ...each([...DEAD, ...CODES], python(400, 'invalid_grant')),
      'refresh: withdrawn': page(500, 'Server Error (500)'),
      'client: wrong': python(401, 'invalid_client', {
        'www-authenticate': 'Bearer error="invalid_client"',
      }),
      'grant type: unknown': python(400, 'unsupported_grant_type'),
      'database away': page(500, 'Server Error (500)'),
      'revocation: done': { status: 200 },
      'revocation: unknown': { status: 200 },
      ...each(['authorize: client', 'authorize: callback'], page(400, 'Mismatching redirect URI.')),
      'authorize: scope': { back: { error: 'invalid_scope' } },
      ...each(TOKENS, EMPTY_403),
    },
    faults: { ...USUAL, rotateAccess: true, revocation: 'both' },
    env: { OAUTH_REDIRECT: 'fixed', OAUTH_SCOPE: 'read write', UPSTREAM_INVALID_TOKEN: '403:empty' },
    kept: {
      setting: 'REFRESH_TOKEN_GRACE_PERIOD_SECONDS = 60',
      faults: { refreshGraceSeconds: 60, graceTokens: 'same' },
      env: { OAUTH_REUSE_SECONDS: '60' },
    },
  },
  doorkeeper: {
    software: 'Doorkeeper',
    version: '5.5.0',
    measuredOn: '2026-11-27',
    special:
      'a used refresh token works until the new access token is used, and a wrong secret is not noticed with an unknown refresh token',
    paths: { base: '', authorize: '/oauth/authorize', token: '/oauth/token', revoke: '/oauth/revoke' },
    signIn: { redirects: true, refusesCallback: 'sign-in', refusesScope: 'sign-in' },
    scopes: { known: ['public', 'write'], unknown: 'refuse' },
    tokenHeaders: { 'content-type': 'application/json; charset=utf-8', ...NO_STORE },
    answers: {
      ...each([...DEAD, ...CODES], refusal(400, 'invalid_grant')),
      'client: wrong': refusal(401, 'invalid_client'),
      'revocation: done': { status: 200, body: {} },
      'revocation: unknown': { status: 200, body: {} },
      ...each(
        ['authorize: client', 'authorize: callback', 'authorize: scope'],
        page(200, 'An error has occurred'),
      ),
      'token: none': challenge(
        401,
        'Bearer realm="Doorkeeper", error="invalid_token", error_description="The access token is invalid"',
      ),
      'token: unknown': challenge(
        401,
        'Bearer realm="Doorkeeper", error="invalid_token", error_description="The access token is invalid"',
      ),
      'token: expired': challenge(
        401,
        'Bearer realm="Doorkeeper", error="invalid_token", error_description="The access token expired"',
      ),
      'token: ended': challenge(
        401,
        'Bearer realm="Doorkeeper", error="invalid_token", error_description="The access token was revoked"',
      ),
    },
    faults: {
      ...USUAL,
      refreshReuse: 'until-first-use',
      revocation: 'pair',
      clientCheck: 'last',
      tokenAnswer: { set: { token_type: 'Bearer', created_at: 1_795_000_000 }, remove: ['callback'] },
    },
    env: { OAUTH_REDIRECT: 'fixed', OAUTH_SCOPE: 'public write', OAUTH_REUSE_SECONDS: '3600' },
  },
  'lemonldap-ng': {
    software: 'LemonLDAP::NG',
    version: '2.16.1',
    measuredOn: '2026-11-27',
    special: 'a refresh brings no new refresh token, and a refusal by the user is consent_required',
    paths: { base: '', authorize: '/oauth2/authorize', token: '/oauth2/token', revoke: null },
    signIn: {
      redirects: false,
      refusesCallback: 'sign-in',
      refusesScope: 'sign-in',
      back: { session_state: 'c2Vzc2lvbg.c3RhdGU' },
    },
    scopes: { known: [], unknown: 'accept', required: 'openid' },
    tokenHeaders: { ...JSON_TYPE, ...NO_STORE },
    answers: {
      ...each(DEAD, refusal(400, 'invalid_request')),
      'refresh: withdrawn': refusal(400, 'invalid_grant'),
      ...each(CODES, refusal(400, 'invalid_grant')),
      'client: wrong': refusal(400, 'invalid_client'),
      ...each(['authorize: client', 'authorize: callback', 'authorize: scope'], page(200, 'Bad request')),
      'authorize: refused by the user': { back: { error: 'consent_required' } },
      ...each(TOKENS, challenge(401, 'error=invalid_request,error_description=Invalid request')),
    },
    faults: {
      ...USUAL,
      omitRefreshToken: 'at-refresh',
      revocation: 'absent',
      tokenAnswer: { set: { token_type: 'Bearer', id_token: 'e30.e30.e30' }, remove: ['callback', 'scope'] },
    },
    env: {
      OAUTH_REDIRECT: 'fixed',
      OAUTH_SCOPE: 'openid profile',
      OAUTH_REFUSED_GRANT: '400:invalid_request',
      OAUTH_REUSE_SECONDS: '3600',
    },
  },
  glewlwyd: {
    software: 'glewlwyd',
    version: '2.7.5',
    measuredOn: '2026-11-27',
    special: 'a dead refresh token is 400 without a body, and so is a wrong secret at a refresh',
    paths: {
      base: '/api/oidc',
      authorize: '/api/oidc/auth',
      token: '/api/oidc/token',
      revoke: '/api/oidc/revoke',
    },
    signIn: { redirects: true, refusesCallback: 'request', refusesScope: 'sign-in' },
    scopes: { known: ['read', 'openid'], unknown: 'refuse' },
    tokenHeaders: { ...JSON_TYPE, ...NO_STORE },
    answers: {
      ...each(DEAD, { status: 400 }),
      ...each(CODES, refusal(403, 'invalid_code')),
      'client: wrong': refusal(403, 'unauthorized_client'),
      'client: wrong, with a refresh token': { status: 400 },
      'client: wrong, at the revocation': { status: 401 },
      'revocation: done': { status: 200 },
      'revocation: unknown': { status: 200 },
      ...each(['authorize: client', 'authorize: callback'], { status: 403 }),
      'authorize: scope': { back: { error: 'invalid_scope' } },
      'authorize: no nonce': { back: { error: 'invalid_request', error_description: 'nonce required' } },
      'authorize: refused by the user': page(200, 'glewlwyd'),
      ...each(TOKENS, { status: 401 }),
    },
    faults: {
      ...USUAL,
      promptNone: 'refuse',
      omitRefreshToken: 'at-refresh',
      refreshReuse: 'allow',
      revocation: 'each',
      endedAccess: 'valid',
      nonce: 'required',
      tokenAnswer: { set: { iat: 1_795_000_000 }, remove: ['callback'] },
    },
    env: {
      OAUTH_REDIRECT: 'fixed',
      OAUTH_SCOPE: 'read',
      OAUTH_REFUSED_GRANT: '400:empty',
      OAUTH_REUSE_SECONDS: '3600',
    },
  },
  'oidc-provider': {
    software: 'oidc-provider',
    version: '9.13.3',
    measuredOn: '2026-11-27',
    special:
      'a refresh token only for offline_access with prompt=consent, and revoking the access token ends it too',
    paths: { base: '', authorize: '/auth', token: '/token', revoke: '/token/revocation' },
    signIn: { redirects: true, refusesCallback: 'request', refusesScope: 'sign-in' },
    scopes: {
      known: ['openid', 'offline_access'],
      unknown: 'drop',
      refusesNone: true,
      refresh: ['offline_access'],
      refreshPrompt: 'consent',
    },
    tokenHeaders: { 'content-type': 'application/json; charset=utf-8', ...NO_STORE },
    guardHeaders: { 'content-type': 'application/json; charset=utf-8' },
    answers: {
      ...each([...DEAD, ...CODES], refusal(400, 'invalid_grant', 'grant request is invalid')),
      'client: wrong': refusal(401, 'invalid_client', 'client authentication failed'),
      'revocation: done': { status: 200 },
      'revocation: unknown': { status: 200 },
      ...each(['authorize: client', 'authorize: callback'], page(400, 'oops! something went wrong')),
      'authorize: scope': { back: { error: 'access_denied' } },
      ...each(
        TOKENS,
        challenge(
          401,
          'Bearer realm="{issuer}", error="invalid_token", error_description="invalid token provided"',
          '{"error":"invalid_token","error_description":"invalid token provided"}',
        ),
      ),
    },
    faults: {
      ...USUAL,
      issuer: '{issuer}',
      promptNone: 'refuse',
      sameRefreshToken: true,
      refreshReuse: 'allow',
      revocation: 'both',
      codeReuse: 'revoke',
      tokenAnswer: { set: { token_type: 'Bearer', id_token: 'e30.e30.e30' }, remove: ['callback'] },
    },
    env: {
      OAUTH_ISSUER: '{issuer}',
      OAUTH_REDIRECT: 'fixed',
      OAUTH_SCOPE: 'openid offline_access',
      OAUTH_AUTHORIZE_PARAMS: 'prompt=consent',
      OAUTH_REUSE_SECONDS: '3600',
    },
  },
  'node-oauth2-server': {
    software: '@node-oauth/oauth2-server',
    version: '5.3.0',
    measuredOn: '2026-11-27',
    special: 'rotates without a grace period, and the application decides about scopes and revocation',
    paths: { base: '', authorize: '/oauth/authorize', token: '/oauth/token', revoke: null },
    signIn: { redirects: false, refusesCallback: 'request', refusesScope: 'request' },
    scopes: { known: ['read', 'write'], unknown: 'refuse' },
    tokenHeaders: { 'content-type': 'application/json; charset=utf-8', ...NO_STORE },
    answers: {
      ...each([...DEAD, ...CODES], refusal(400, 'invalid_grant')),
      'client: wrong': refusal(400, 'invalid_client'),
      ...each(['authorize: client', 'authorize: callback'], {
        status: 400,
        headers: JSON_TYPE,
        body: { error: 'invalid_client' },
      }),
      'authorize: scope': { back: { error: 'invalid_scope' } },
      ...each(TOKENS, challenge(401, 'Bearer realm="Service",error="invalid_token"')),
    },
    faults: { ...USUAL, revocation: 'absent' },
    env: { OAUTH_REDIRECT: 'fixed', OAUTH_SCOPE: 'read write' },
  },
  oauth2orize: {
    software: 'oauth2orize',
    version: '1.12.0',
    measuredOn: '2026-11-27',
    special: 'a dead refresh token is 403 invalid_grant, and a wrong secret a plain 401',
    paths: { base: '', authorize: '/oauth/authorize', token: '/oauth/token', revoke: null },
    signIn: { redirects: false, refusesCallback: 'request', refusesScope: 'request' },
    scopes: { known: [], unknown: 'accept' },
    tokenHeaders: { ...JSON_TYPE, ...NO_STORE },
    answers: {
      ...each(DEAD, refusal(403, 'invalid_grant', 'Invalid refresh token')),
      ...each(CODES, refusal(403, 'invalid_grant', 'Invalid authorization code')),
      'client: wrong': {
        status: 401,
        headers: { 'content-type': 'text/plain;charset=UTF-8' },
        body: 'Unauthorized',
      },
      ...each(['authorize: client', 'authorize: callback'], {
        status: 403,
        headers: JSON_TYPE,
        body: { error: 'unauthorized_client' },
      }),
      ...each(TOKENS, { status: 401 }),
    },
    faults: { ...USUAL, revocation: 'absent' },
    env: { OAUTH_REDIRECT: 'fixed', OAUTH_SCOPE: 'read write' },
  },
  keycloak: {
    software: 'Keycloak',
    version: '26.7.3',
    measuredOn: '2026-11-27',
    special:
      'refresh_expires_in is the idle limit of the sign-on, a wrong secret is 401 unauthorized_client, and no answer has a Date',
    paths: {
      base: '/realms/REALM',
      authorize: '/realms/REALM/protocol/openid-connect/auth',
      token: '/realms/REALM/protocol/openid-connect/token',
      revoke: '/realms/REALM/protocol/openid-connect/revoke',
      endSession: '/realms/REALM/protocol/openid-connect/logout',
    },
    signIn: {
      redirects: false,
      refusesCallback: 'request',
      refusesScope: 'request',
      back: { session_state: '00000000-0000-4000-8000-000000000000' },
    },
    scopes: { known: ['openid', 'profile', 'email'], unknown: 'refuse', added: ['email', 'profile'] },
    sendsDate: false,
    tokenHeaders: {
      ...JSON_TYPE,
      ...NO_STORE,
      'referrer-policy': 'no-referrer',
      'strict-transport-security': 'max-age=31536000; includeSubDomains',
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'SAMEORIGIN',
      'x-robots-tag': 'none',
    },
    guardHeaders: { 'content-type': 'text/plain;charset=utf-8', ...NO_STORE },
    answers: {
      'refresh: unknown': refusal(400, 'invalid_grant', 'Invalid refresh token'),
      'refresh: used': refusal(400, 'invalid_grant', 'Maximum allowed refresh token reuse exceeded'),
      'refresh: expired': refusal(400, 'invalid_grant', 'Token is not active'),
      'refresh: revoked': refusal(400, 'invalid_grant', 'Session not active'),
      'refresh: withdrawn': refusal(400, 'invalid_grant', 'Session not active'),
      'refresh: replayed': refusal(400, 'invalid_grant', "Session doesn't have required client"),
      'refresh: superseded': refusal(400, 'invalid_grant', 'Session not active'),
      'refresh: account deleted': refusal(400, 'invalid_grant', 'Session not active'),
      'code: unknown': refusal(400, 'invalid_grant', 'Code not valid'),
      'code: used': refusal(400, 'invalid_grant', 'Code not valid'),
      'code: verifier': refusal(400, 'invalid_grant', 'PKCE verification failed: Code mismatch'),
      'client: wrong': refusal(401, 'unauthorized_client', 'Invalid client or Invalid client credentials'),
      'grant type: unknown': refusal(400, 'unsupported_grant_type', 'Unsupported grant_type'),
      'database away': refusal(500, 'unknown_error', 'For more on this error consult the server log.'),
      'revocation: done': { status: 200 },
      'revocation: unknown': refusal(200, 'invalid_token', 'Invalid token'),
      ...each(['authorize: client', 'authorize: callback'], page(400, 'We are sorry...')),
      'authorize: scope': { back: { error: 'invalid_scope', error_description: 'Invalid scopes' } },
      'token: none': challenge(401, 'Bearer realm="REALM"'),
      'token: unknown': keycloakGuard('Token verification failed'),
      'token: expired': keycloakGuard('Token verification failed'),
      'token: ended': keycloakGuard('user_session_not_found'),
    },
    faults: {
      ...USUAL,
      issuer: '{issuer}',
      promptNone: 'refuse',
      refreshReuse: 'allow',
      codeReuse: 'revoke',
      refreshLifeSeconds: 1_800,
      refreshExpiresIn: 'refresh_expires_in',
      tokenAnswer: {
        set: { token_type: 'Bearer', id_token: 'e30.e30.e30', 'not-before-policy': 0 },
        remove: ['callback'],
      },
    },
    env: {
      OAUTH_ISSUER: '{issuer}',
      OAUTH_REDIRECT: 'fixed',
      OAUTH_SCOPE: 'openid',
      OAUTH_REUSE_SECONDS: '3600',
      SESSION_IDLE_SECONDS: '1800',
      SESSION_MAX_SECONDS: '36000',
    },
  },
  hydra: {
    software: 'Ory Hydra',
    version: '2.3.0',
    measuredOn: '2026-11-27',
    special:
      'a refresh ends the old access token and a second presentation ends the whole chain; a refresh token only for the scope offline',
    paths: {
      base: '',
      authorize: '/oauth2/auth',
      token: '/oauth2/token',
      revoke: '/oauth2/revoke',
    },
    signIn: { redirects: true, refusesCallback: 'request', refusesScope: 'request' },
    scopes: {
      known: ['offline', 'offline_access', 'openid', 'read'],
      unknown: 'refuse',
      refresh: ['offline', 'offline_access'],
    },
    tokenHeaders: { 'content-type': 'application/json;charset=UTF-8', ...NO_STORE },
    guardHeaders: {
      'cache-control': 'private, no-cache, no-store, must-revalidate',
      'content-type': 'application/json',
    },
    answers: {
      ...each(
        DEAD,
        refusal(400, 'invalid_grant', `${HYDRA_GRANT} The refresh token is malformed or not valid.`),
      ),
      'refresh: used': refusal(400, 'invalid_grant', `${HYDRA_GRANT} The refresh token was already used.`),
      'refresh: expired': refusal(400, 'invalid_grant', `${HYDRA_GRANT} The refresh token expired.`),
      'code: unknown': refusal(400, 'invalid_grant', HYDRA_GRANT),
      'code: used': refusal(
        400,
        'invalid_grant',
        `${HYDRA_GRANT} The authorization code has already been used.`,
      ),
      'code: verifier': refusal(
        400,
        'invalid_grant',
        `${HYDRA_GRANT} The PKCE code challenge did not match the code verifier.`,
      ),
      'client: wrong': HYDRA_CLIENT,
      'client: wrong method': refusal(
        401,
        'invalid_client',
        "Client authentication failed (e.g., unknown client, no client authentication included, or unsupported authentication method). The OAuth 2.0 Client supports client authentication method 'client_secret_basic', but method 'client_secret_post' was requested.",
      ),
      'grant type: unknown': refusal(400, 'invalid_request'),
      'database away': HYDRA_CLIENT,
      'revocation: done': { status: 200 },
      'revocation: unknown': { status: 200 },
      'revocation: database away': { status: 200 },
      ...each(['authorize: client', 'authorize: callback', 'authorize: database away'], HYDRA_ERROR_PAGE),
      'authorize: scope': {
        back: {
          error: 'invalid_scope',
          error_description: 'The requested scope is invalid, unknown, or malformed.',
        },
      },
      ...each(
        ['token: none', 'token: unknown', 'token: ended'],
        challenge(
          401,
          `Bearer error="request_unauthorized",error_description="${HYDRA_UNAUTHORIZED}"`,
          JSON.stringify({ error: 'request_unauthorized', error_description: HYDRA_UNAUTHORIZED }),
        ),
      ),
      'token: expired': challenge(
        401,
        'Bearer error="invalid_token",error_description="Token expired."',
        '{"error":"invalid_token","error_description":"Token expired."}',
      ),
    },
    pages: {
      '/oauth2/fallbacks/error': {
        status: 500,
        headers: HTML,
        body: '<!doctype html><title>An OAuth 2.0 Error Occurred</title>\n',
      },
    },
    faults: {
      ...USUAL,
      clientAuth: 'post',
      promptNone: 'refuse',
      rotateAccess: true,
      refreshReuse: 'revoke',
      revocation: 'both',
      codeReuse: 'revoke',
      tokenAnswer: { set: { token_type: 'bearer' }, remove: ['callback'] },
    },
    env: { OAUTH_REDIRECT: 'fixed', OAUTH_SCOPE: 'offline read' },
    kept: {
      setting: 'oauth2.grant.refresh_token.rotation_grace_period: 3m',
      faults: { refreshGraceSeconds: 180 },
      env: { OAUTH_REUSE_SECONDS: '180' },
    },
  },
  'spring-authorization-server': {
    software: 'Spring Authorization Server',
    version: '7.1.2',
    measuredOn: '2026-11-27',
    special:
      'redirects a wrong client, a wrong callback and its own failures to the sign-in page; one access token lives; PKCE is required',
    paths: { base: '', authorize: '/oauth2/authorize', token: '/oauth2/token', revoke: '/oauth2/revoke' },
    signIn: { redirects: true, refusesCallback: 'sign-in', refusesScope: 'request' },
    scopes: { known: ['read'], unknown: 'refuse' },
    tokenHeaders: {
      'content-type': 'application/json;charset=UTF-8',
      'x-content-type-options': 'nosniff',
      'x-xss-protection': '0',
      'cache-control': 'no-cache, no-store, max-age=0, must-revalidate',
      pragma: 'no-cache',
      expires: '0',
      'x-frame-options': 'DENY',
    },
    answers: {
      ...each([...DEAD, ...CODES], refusal(400, 'invalid_grant')),
      'client: wrong': refusal(401, 'invalid_client'),
      'database away': SPRING_LOGIN,
      'revocation: done': { status: 200 },
      'revocation: unknown': { status: 200 },
      'revocation: database away': SPRING_LOGIN,
      ...each(['authorize: client', 'authorize: callback'], page(500, 'status=999')),
      'authorize: scope': springBack('invalid_scope', 'scope'),
      'authorize: no challenge': springBack('invalid_request', 'code_challenge'),
      'token: none': challenge(
        401,
        'Bearer resource_metadata="{issuer}/.well-known/oauth-protected-resource"',
      ),
      ...each(['token: unknown', 'token: expired', 'token: ended'], challenge(401, SPRING_INACTIVE)),
    },
    faults: {
      ...USUAL,
      clientAuth: 'post',
      pkce: 'require',
      rotateAccess: true,
      sameRefreshToken: true,
      refreshReuse: 'allow',
      codeReuse: 'revoke',
      grantLifeSeconds: 3_600,
    },
    env: { OAUTH_REDIRECT: 'fixed', OAUTH_SCOPE: 'read', OAUTH_REUSE_SECONDS: '3600' },
  },
  'django-oauth-toolkit-3': {
    software: 'django-oauth-toolkit',
    version: '3.4.1',
    measuredOn: '2026-11-27',
    special:
      'a bare 403 for every token it refuses, PKCE is required, and a refresh deletes the old access token',
    paths: {
      base: '/o',
      authorize: '/o/authorize/',
      token: '/o/token/',
      revoke: '/o/revoke_token/',
    },
    signIn: { redirects: true, refusesCallback: 'sign-in', refusesScope: 'sign-in' },
    scopes: { known: ['read', 'write'], unknown: 'refuse' },
    tokenHeaders: { ...JSON_TYPE, ...NO_STORE, ...DJANGO },
    answers: {
      ...each([...DEAD, ...CODES], python(400, 'invalid_grant')),
      'client: wrong': python(401, 'invalid_client', {
        'www-authenticate': 'Bearer error="invalid_client"',
      }),
      'grant type: unknown': python(400, 'unsupported_grant_type'),
      'database away': page(500, 'Server Error (500)'),
      ...each(['revocation: done', 'revocation: unknown'], { status: 200, headers: HTML }),
      ...each(['authorize: client', 'authorize: callback'], page(400, 'Mismatching redirect URI.')),
      'authorize: scope': { back: { error: 'invalid_scope' } },
      'authorize: no challenge': {
        back: { error: 'invalid_request', error_description: 'Code challenge required.' },
      },
      ...each(TOKENS, EMPTY_403),
    },
    faults: {
      ...USUAL,
      promptNone: 'refuse',
      pkce: 'require',
      rotateAccess: true,
      revocation: 'both',
    },
    env: { OAUTH_REDIRECT: 'fixed', OAUTH_SCOPE: 'read write', UPSTREAM_INVALID_TOKEN: '403:empty' },
    kept: {
      setting: 'REFRESH_TOKEN_GRACE_PERIOD_SECONDS = 60',
      faults: { refreshGraceSeconds: 60, graceTokens: 'same' },
      env: { OAUTH_REUSE_SECONDS: '60' },
    },
  },
  authlib: {
    software: 'Authlib',
    version: '1.9.6',
    measuredOn: '2026-11-27',
    special:
      'takes the secret in the body for a code and by Basic alone for a refresh and a revocation; drops unknown scopes without a word',
    paths: { base: '', authorize: '/oauth/authorize', token: '/oauth/token', revoke: '/oauth/revoke' },
    signIn: { redirects: false, refusesCallback: 'request', refusesScope: 'request' },
    scopes: { known: ['read', 'write'], unknown: 'drop' },
    tokenHeaders: { ...JSON_TYPE, ...NO_STORE },
    guardHeaders: { ...JSON_TYPE, ...NO_STORE },
    answers: {
      ...each(DEAD, python(400, 'invalid_grant')),
      'refresh: account deleted': {
        status: 400,
        body: `{"error": "invalid_request", "error_description": "There is no 'user' for this token."}`,
      },
      ...each(CODES, {
        status: 400,
        body: `{"error": "invalid_grant", "error_description": "Invalid 'code' in request."}`,
      }),
      'client: wrong': authlibClient("'client_secret_basic', 'client_secret_post'"),
      'client: wrong method': authlibClient("'client_secret_basic'"),
      'database away': page(500, 'Internal Server Error'),
      ...each(['revocation: done', 'revocation: unknown'], { status: 200, body: {} }),
      ...each(['authorize: client', 'authorize: callback'], {
        status: 400,
        headers: JSON_TYPE,
        body: '{"error": "invalid_request", "error_description": "Redirect URI is not supported by client."}',
      }),
      'authorize: refused by the user': {
        back: {
          error: 'access_denied',
          error_description: 'The resource owner or authorization server denied the request',
        },
      },
      'token: none': AUTHLIB_NO_TOKEN,
      ...each(['token: unknown', 'token: expired', 'token: ended'], AUTHLIB_GUARD),
    },
    faults: { ...USUAL, clientAuth: 'any-for-codes', rotateAccess: true, revocation: 'both' },
    env: {
      OAUTH_CLIENT_AUTH: 'basic',
      OAUTH_REDIRECT: 'fixed',
      OAUTH_SCOPE: 'read write',
      OAUTH_REFUSED_GRANT: '400:invalid_request',
    },
    kept: {
      setting: 'INCLUDE_NEW_REFRESH_TOKEN = False, and a revoke_old_credential that sets nothing',
      faults: { omitRefreshToken: 'at-refresh' },
      env: { OAUTH_REUSE_SECONDS: '3600' },
    },
  },
  canaille: {
    software: 'Canaille',
    version: '0.3.6',
    measuredOn: '2026-11-27',
    special:
      'a refresh token expires with its access token; a missing nonce is an error only after the sign-in; revokes by Basic alone',
    paths: { base: '', authorize: '/oauth/authorize', token: '/oauth/token', revoke: '/oauth/revoke' },
    signIn: { redirects: true, refusesCallback: 'sign-in', refusesScope: 'sign-in' },
    scopes: { known: ['openid', 'profile', 'email'], unknown: 'drop' },
    tokenHeaders: { ...JSON_TYPE, ...NO_STORE },
    guardHeaders: { ...JSON_TYPE, ...NO_STORE },
    answers: {
      ...each(DEAD, python(400, 'invalid_grant')),
      ...each(CODES, {
        status: 400,
        body: `{"error": "invalid_grant", "error_description": "Invalid 'code' in request."}`,
      }),
      'client: wrong': authlibClient(
        "'client_secret_basic', 'client_secret_post', 'client_assertion_jwt', 'none'",
      ),
      'grant type: unknown': python(400, 'unsupported_grant_type'),
      ...each(['revocation: done', 'revocation: unknown'], { status: 200, body: {} }),
      'authorize: client': page(404, 'Authorization interface - Canaille'),
      'authorize: callback': page(400, 'Authorization interface - Canaille'),
      'authorize: no nonce': {
        back: { error: 'invalid_request', error_description: "Missing 'nonce' in request." },
      },
      'token: none': AUTHLIB_NO_TOKEN,
      ...each(['token: unknown', 'token: expired', 'token: ended'], AUTHLIB_GUARD),
    },
    faults: {
      ...USUAL,
      promptNone: 'check',
      nonce: 'required',
      clientAuth: 'basic',
      rotateAccess: true,
      revocation: 'both',
      refreshLifeSeconds: 3_600,
    },
    env: {
      OAUTH_AUTHORIZE_PARAMS: 'nonce={random}',
      OAUTH_CLIENT_AUTH: 'basic',
      OAUTH_REDIRECT: 'fixed',
      OAUTH_SCOPE: 'openid profile',
      REFRESH_AHEAD_SECONDS: '1200',
    },
  },
  dex: {
    software: 'Dex',
    version: '2.45.1',
    measuredOn: '2026-11-27',
    special:
      'one refresh token for an account and a client: a second sign-in ends the first; every dead one is 400 invalid_request, a deleted account 500',
    paths: { base: '/dex', authorize: '/dex/auth', token: '/dex/token', revoke: null },
    signIn: { redirects: true, refusesCallback: 'page', refusesScope: 'page' },
    scopes: {
      known: ['openid', 'offline_access', 'email', 'profile'],
      unknown: 'refuse',
      required: 'openid',
      refresh: ['offline_access'],
    },
    tokenHeaders: JSON_TYPE,
    guardHeaders: JSON_TYPE,
    answers: {
      ...each(DEAD, DEX_CLAIMED),
      'refresh: account deleted': DEX_FAILED,
      ...each(CODES, refusal(400, 'invalid_grant', 'Invalid or expired code parameter.')),
      'client: wrong': refusal(401, 'invalid_client', 'Invalid client credentials.'),
      'database away': DEX_FAILED,
      ...each(['authorize: client', 'authorize: callback'], page(400, 'Unregistered redirect_uri')),
      'authorize: scope': {
        back: { error: 'invalid_scope', error_description: 'Unrecognized scope(s)' },
      },
      'authorize: refused by the user': page(500, 'Approval rejected.'),
      'token: none': {
        status: 401,
        headers: { 'www-authenticate': 'Bearer' },
        body: { error: 'access_denied', error_description: 'Invalid bearer token.' },
      },
      ...each(['token: unknown', 'token: expired', 'token: ended'], DEX_GUARD),
    },
    faults: {
      ...USUAL,
      oneGrantPerUser: 'refresh-token',
      endedAccess: 'valid',
      revocation: 'absent',
      tokenAnswer: { set: { token_type: 'bearer', id_token: 'e30.e30.e30' }, remove: ['callback', 'scope'] },
    },
    env: {
      OAUTH_REDIRECT: 'fixed',
      OAUTH_SCOPE: 'openid offline_access',
      OAUTH_REFUSED_GRANT: '400:invalid_request',
      UPSTREAM_INVALID_TOKEN: '403:/error=access_denied',
    },
    kept: {
      setting: 'expiry.refreshTokens.reuseInterval: 30s',
      faults: { refreshGraceSeconds: 30 },
      env: { OAUTH_REUSE_SECONDS: '30' },
    },
  },
}
