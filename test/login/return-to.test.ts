import t from 'tap'
import { knownTricks, landsAt, requireLocal } from '../../tools/fuzz/return-tricks.ts'
import { shared } from '../helpers/shared.ts'
import { ask, problemOf, type WireAnswer } from '../http/wire.ts'

t.test('no known trick leads to another site or to a route of this server', async (t) => {
  const { bff, port } = await shared()
  const tricks = knownTricks()
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
      t.doesNotThrow(() => requireLocal(location, bff.publicUrl), name)
    }
  }
  t.ok(allowed < 100, `${allowed} were harmless as they stood`)
})

t.test('a path of this site is returned to as given', async (t) => {
  const { port } = await shared()
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
})

t.test('512 bytes are accepted; more bytes or a repeated parameter are invalid_return_to', async (t) => {
  const { port } = await shared()
  const start = (query: string): Promise<WireAnswer> => ask(port, { target: `/auth/login${query}` })
  for (const text of ['a'.repeat(511), `${'ä'.repeat(255)}a`]) {
    const answer = await start(`?returnTo=/${encodeURIComponent(text)}`)
    t.equal(answer.status, 303, text)
    t.ok(
      Buffer.byteLength(answer.headers.get('set-cookie')![0]!) <= 1_024,
      'the login cookie has at most 1 KiB',
    )
  }
  for (const query of [
    `?returnTo=/${'a'.repeat(512)}`,
    `?returnTo=/${encodeURIComponent('ä'.repeat(256))}`,
    `?returnTo=/${encodeURIComponent('"'.repeat(256))}`,
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
