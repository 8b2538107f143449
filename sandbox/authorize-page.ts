import { escapeMarkup, PAGE_HEADERS, page } from './html.ts'
import { type SandboxResponse, textResponse, withHeaders } from './response.ts'
import type { SandboxUser } from './settings.ts'

interface SignInPage {
  clientId: string
  redirectUri: string
  scope: string
  /** Shown as a hint on the page. */
  users: readonly SandboxUser[]
  /** User name of the last attempt; null on the first visit. */
  failedUsername: string | null
}

/**
 * The page where the user signs in and accepts or refuses. One form that is posted to its own
 * address, query included, so it does not matter under which address the browser sees it. Stable for
 * scripts: inputs `username` and `password`, buttons `decision` = `accept` or `refuse` (ids: the
 * same words), `error` for a failed sign-in, `use-<name>` to sign in and accept with one click.
 */
export function signInPage({
  clientId,
  redirectUri,
  scope,
  users,
  failedUsername,
}: SignInPage): SandboxResponse {
  const failed = failedUsername !== null
  const shortcuts = users
    .map(
      ({ username, password }) => `<form method="post">
<input type="hidden" name="username" value="${escapeMarkup(username)}">
<input type="hidden" name="password" value="${escapeMarkup(password)}">
<button id="use-${escapeMarkup(username)}" name="decision" value="accept">Use ${escapeMarkup(username)} / ${escapeMarkup(password)}</button>
</form>`,
    )
    .join('\n')
  const body = `<h1>Sign in to the sandbox platform</h1>
<p><strong id="client">${escapeMarkup(clientId)}</strong> asks to read and change your data. It does not see your password.</p>
${failed ? '<p class="alarm" id="error" role="alert">User name or password is wrong.</p>' : ''}
<form method="post">
<label for="username">User name</label>
<input id="username" name="username" value="${escapeMarkup(failedUsername ?? '')}" autocomplete="username"
  autocapitalize="none" spellcheck="false" required${failed ? ' aria-describedby="error"' : ' autofocus'}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required${failed ? ' autofocus aria-describedby="error"' : ''}>
<button id="accept" name="decision" value="accept">Sign in and accept</button>
<button id="refuse" name="decision" value="refuse" formnovalidate>Refuse</button>
</form>
<p class="soft or">This is a sandbox. Its accounts are for everybody:</p>
${shortcuts}
<p class="soft">You go back to ${escapeMarkup(URL.canParse(redirectUri) ? new URL(redirectUri).host : redirectUri)} afterwards.
The access is for <span id="scope">${escapeMarkup(scope)}</span>.</p>`
  const response = textResponse(failed ? 403 : 200, page('Sign in', body), failed ? 'wrong_password' : 'page')
  return withHeaders(response, PAGE_HEADERS)
}

/** Where a sign-out ends that names no address of the application to go back to. */
export function signedOutPage(): SandboxResponse {
  const body = `<h1>You are signed out of the sandbox platform</h1>
<p class="soft">Go back to the application.</p>`
  return withHeaders(textResponse(200, page('Signed out', body), 'signed_out'), PAGE_HEADERS)
}

/** The page for a request that must not lead to a redirect (RFC 6749 section 4.1.2.1). */
export function refusalPage(reason: string, outcome: string): SandboxResponse {
  const body = `<h1>This sign-in cannot go on</h1>
<p id="error">${escapeMarkup(reason)}</p>
<p class="soft">Go back to the application and start again.</p>`
  return withHeaders(textResponse(400, page('Sign-in refused', body), outcome), PAGE_HEADERS)
}
