// Without fast-check, which takes half a second to load.

import { readFileSync } from 'node:fs'
import { ask, field } from '../../test/http/wire.ts'

const NAVIGATION = [
  ['Sec-Fetch-Mode', 'navigate'],
  ['Sec-Fetch-Site', 'none'],
] as const

/** Where the browser lands after the user declines; `location` is null where the sign-in does not begin. */
export async function landsAt(
  port: number,
  query: string,
): Promise<{ status: number; location: string | null }> {
  const start = await ask(port, { target: `/auth/login${query}`, headers: NAVIGATION })
  if (start.status !== 303) return { status: start.status, location: null }
  const redirectUri = new URL(field(start, 'location')!).searchParams.get('redirect_uri')!
  const cookie = field(start, 'set-cookie')!.split(';', 1)[0]!
  const back = await ask(port, {
    target: `${new URL(redirectUri).pathname}?error=access_denied`,
    headers: [...NAVIGATION, ['Cookie', cookie]],
  })
  return { status: back.status, location: field(back, 'location') ?? null }
}

/** Known tricks, as an attacker would put them into `returnTo` before encoding. */
export function knownTricks(): string[] {
  const text = readFileSync(new URL('../../test/fixtures/open-redirects.txt', import.meta.url), 'utf8')
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('# '))
    .map((line) => (line.startsWith('"') ? (JSON.parse(line) as string) : line))
}

/** Throws unless a browser that gets this `Location` stays at a page of the app. */
export function requireLocal(location: string, publicUrl: string): void {
  // A header has no other characters; each reader would interpret them in its own way.
  if (!/^\/[\x21-\x7e]*$/.test(location)) throw new Error(`not a plain path: ${JSON.stringify(location)}`)
  for (const base of [publicUrl, `${publicUrl}/auth/callback/nonce?code=x`]) {
    const { origin, pathname, username } = new URL(location, base)
    if (origin !== new URL(publicUrl).origin || username !== '')
      throw new Error(`leaves the site: ${location}`)
    for (const path of [pathname, decodeURIComponent(pathname)]) {
      if (/^[/\\]{2}/.test(path)) throw new Error(`another host after decoding: ${location}`)
      if (/^\/(auth|flux|site|data)(\/|$)/i.test(path)) throw new Error(`a route of this server: ${location}`)
    }
  }
}
