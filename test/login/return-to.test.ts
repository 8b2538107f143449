import { readFileSync } from 'node:fs'
import t from 'tap'
import { startBff, startSandbox } from '../helpers/system.ts'
import type { WireAnswer } from '../http/wire.ts'
import { ask, field, portOf, problemOf } from '../http/wire.ts'

const NAVIGATION = [
  ['Sec-Fetch-Mode', 'navigate'],
  ['Sec-Fetch-Site', 'none'],
] as const

/** Where this browser ends up when the user declines to sign in; null where the sign-in does not begin. */
async function landsAt(port: number, query: string): Promise<{ status: number; location: string | null }> {
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

function fixture(): string[] {
  const text = readFileSync(new URL('../fixtures/open-redirects.txt', import.meta.url), 'utf8')
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('# '))
    .map((line) => (line.startsWith('"') ? (JSON.parse(line) as string) : line))
}

t.test('no known trick leads off the site, or to a route of this server', async (t) => {
  const bff = await startBff(t, await startSandbox(t), { LOGIN_RATE_PER_MINUTE: '0' })
  const port = portOf(bff)
  const tricks = fixture()
  t.ok(tricks.length >= 150, `${tricks.length} tricks`)
  let allowed = 0
  for (const trick of tricks) {
    const asIs = /^[\x21-\x7e]+$/.test(trick) && !trick.includes('#') ? [trick] : []
    const encoded = !/\p{Surrogate}/u.test(trick) ? [encodeURIComponent(trick)] : []
    for (const sent of [...encoded, ...asIs]) {
      const { status, location } = await landsAt(port, `?returnTo=${sent}`)
      const name = JSON.stringify(sent)
      if (location === null) {
        t.equal(status, 400, `${name} is refused`)
        continue
      }
      allowed += 1
      t.match(location, /^\/(?![/\\])[\x21-\x7e]*$/, `${name} stays a path`)
      t.equal(new URL(location, bff.publicUrl).origin, bff.publicUrl, `${name} stays here`)
      const path = decodeURIComponent(new URL(location, bff.publicUrl).pathname)
      t.notMatch(path, /^\/+(auth|flux|site)(\/|$)/i, `${name} is no route of ours`)
      t.notMatch(path, /^[/\\]{2}/, `${name} is one slash for whoever decodes it`)
    }
  }
  t.ok(allowed < 100, `${allowed} were harmless as they stood`)
})

t.test('a path of this site comes back as it was given', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t)))
  for (const [given, expected] of [
    ['/', '/?login_error=access_denied#_'],
    ['/app', '/app?login_error=access_denied#_'],
    ['/app/', '/app/?login_error=access_denied#_'],
    ['/app?tab=1&x=a%2Fb', '/app?tab=1&x=a%2Fb&login_error=access_denied#_'],
    ['/app?next=https://other.test/', '/app?next=https://other.test/&login_error=access_denied#_'],
    ['/app#/route?x=1', '/app?login_error=access_denied#/route?x=1'],
    ['/app#', '/app?login_error=access_denied#_'],
    ['/a/./b/../c', '/a/c?login_error=access_denied#_'],
    ['/ä/日本', '/%C3%A4/%E6%97%A5%E6%9C%AC?login_error=access_denied#_'],
    ['/authors', '/authors?login_error=access_denied#_'],
    ['/sites/1', '/sites/1?login_error=access_denied#_'],
    ['/my/auth/page', '/my/auth/page?login_error=access_denied#_'],
    ['/a//b', '/a//b?login_error=access_denied#_'],
    ["/o'neil?q=(1)*!~", "/o'neil?q=(1)*!~&login_error=access_denied#_"],
  ] as const) {
    const { location } = await landsAt(port, `?returnTo=${encodeURIComponent(given)}`)
    t.equal(location, expected, given)
  }
  t.equal((await landsAt(port, '')).location, '/?login_error=access_denied#_', 'the default is /')
  t.equal((await landsAt(port, '?other=1')).location, '/?login_error=access_denied#_')
})

t.test('512 bytes are taken, more are invalid_return_to, and so are two', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t)))
  const start = (query: string): Promise<WireAnswer> => ask(port, { target: `/auth/login${query}` })
  t.equal((await start(`?returnTo=/${'a'.repeat(511)}`)).status, 303)
  for (const query of [
    `?returnTo=/${'a'.repeat(512)}`,
    `?returnTo=/${encodeURIComponent('ä'.repeat(256))}`,
    '?returnTo=/a&returnTo=/a',
    '?returnTo=/a&return%54o=/b',
    '?returnTo=',
    '?returnTo',
  ]) {
    const answer = await start(query)
    t.equal(answer.status, 400, query.slice(0, 40))
    t.match(problemOf(answer), { code: 'invalid_return_to', detail: /returnTo/ }, query.slice(0, 40))
    t.notOk(answer.headers.has('set-cookie'))
  }
})
