import { createHash, timingSafeEqual } from 'node:crypto'
import type { Profile } from './profile.ts'
import type { SandboxUser, Settings } from './settings.ts'

export type Accounts = ReturnType<typeof createAccounts>

/** The users, the one client, and their permissions. */
export function createAccounts({ settings }: { settings: Settings }) {
  const { client, users, wacs } = settings
  const { hostname: callbackHost, origin: callbackOrigin } = new URL(client.callback)

  function signIn(username: string, password: string): SandboxUser | null {
    const user = users.find((candidate) => candidate.username === username)
    return user !== undefined && isSameText(user.password, password) ? user : null
  }

  return {
    /** The user with this name and password; null for a wrong pair. */
    signIn,

    /** Whether these are the client's credentials, compared exactly as decoded from the form. */
    isClient(clientId: string, clientSecret: string): boolean {
      return isSameText(client.clientId, clientId) && isSameText(client.clientSecret, clientSecret)
    },

    /** Whether this user may sign in by the password grant (document section 5.4). */
    mayUsePasswordGrant(user: SandboxUser): boolean {
      return settings.passwordGrant === 'everyone' || user === users[0]
    },

    /** The granted scope for a requested one; null: the scope is invalid. */
    grantedScope(asked: string | undefined, ownAddress: string): string | null {
      if (settings.profile !== null) return grantedByProfile(settings.profile.scopes, words(asked ?? ''))
      if (asked === undefined) return settings.scope ?? ownAddress
      if (settings.scope !== null) return asked === settings.scope ? asked : null
      return /^https?:\/\/[\x21-\x7e]+$/.test(asked) && URL.canParse(asked) ? asked : null
    },

    /** Whether a sign-in with this scope and this `prompt` brings a refresh token. */
    isRefreshable(scope: string, prompt: string | null): boolean {
      const { refresh, refreshPrompt } = settings.profile?.scopes ?? {}
      const isAsked = refresh === undefined || words(scope).some((word) => refresh.includes(word))
      return isAsked && (refreshPrompt === undefined || words(prompt ?? '').includes(refreshPrompt))
    },

    /** Whether a token of this user (null: of the client alone) reaches this account. */
    mayEnter(username: string | null, wac: string): boolean {
      const user = users.find((candidate) => candidate.username === username)
      return user?.wacs === undefined || user.wacs.includes(wac)
    },

    /** Whether a browser may go back to this address after a sign-out: it is on the origin of the registered callback. */
    isSignedOutUri(address: string): boolean {
      return URL.canParse(address) && new URL(address).origin === callbackOrigin
    },

    isWac(wac: string): boolean {
      return wacs.includes(wac)
    },

    /**
     * Whether a code or token may be sent to this address: the host name of the registered callback
     * (document section 5.4), or exactly that callback.
     */
    isRedirectUri(redirectUri: string, exact: boolean): boolean {
      if (exact) return redirectUri === client.callback
      // The URL parser removes or replaces characters that a browser would read in another way.
      if (!/^https?:\/\/[\x21-\x7e]+$/.test(redirectUri) || /[\\#]/.test(redirectUri)) return false
      if (!URL.canParse(redirectUri)) return false
      const url = new URL(redirectUri)
      const hasUser = url.username !== '' || url.password !== ''
      return !hasUser && url.hostname === callbackHost
    },
  }
}

/** Words of a scope, without the empty ones. */
function words(text: string): string[] {
  return text.split(' ').filter((word) => word !== '')
}

function grantedByProfile(scopes: Profile['scopes'], asked: readonly string[]): string | null {
  const { known, unknown, required, added = [] } = scopes
  if (required !== undefined && !asked.includes(required)) return null
  const isKnown = (word: string): boolean => unknown === 'accept' || known.includes(word)
  if (unknown === 'refuse' && !asked.every(isKnown)) return null
  const granted = asked.filter(isKnown)
  if (unknown === 'drop' && asked.length > 0 && granted.length === 0 && scopes.refusesNone === true)
    return null
  return [...new Set([...granted, ...added])].join(' ')
}

function isSameText(a: string, b: string): boolean {
  return timingSafeEqual(digest(a), digest(b))
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
