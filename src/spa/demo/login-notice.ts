const NOTICES: Record<string, string> = {
  access_denied:
    'You refused access, so you are not signed in. Nothing was kept. You can try again at any time.',
  server_error: 'The authorization server had a fault, so you are not signed in. Please try again.',
  temporarily_unavailable:
    'The authorization server is busy, so you are not signed in. Please try again in a moment.',
}

const UNKNOWN = 'The sign-in did not succeed. Please try again.'

/** What a sign-in that came back without success left in the address, in words; `null` where it left nothing. */
export function readLoginNotice(address: URL): string | null {
  const error = address.searchParams.get('login_error')
  if (error === null) return null
  return Object.hasOwn(NOTICES, error) ? NOTICES[error]! : UNKNOWN
}

/** The address without the traces of a sign-in: `login_error`, and the empty fragment `#_`. */
export function cleanAddress(address: URL): URL {
  const clean = new URL(address)
  if (clean.searchParams.has('login_error')) clean.searchParams.delete('login_error')
  if (clean.hash === '#_') clean.hash = ''
  return clean
}
