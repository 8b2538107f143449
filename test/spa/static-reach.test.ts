import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { startBff } from '../helpers/system.ts'
import { ask, field, portOf } from '../http/wire.ts'

const NOT_FOUND = [
  ...['/private/../index.html', '/private/%2e%2e/index.html', '/private/./x.txt', '/private/%2e/x.txt'],
  ...['/private//x.txt', '//private/x.txt', '/private/x.txt/', '/private/x.txt%00', '/index.html/..'],
  ...[
    '/../secret.txt',
    '/..%2fsecret.txt',
    '/%2e%2e/secret.txt',
    '/%252e%252e/secret.txt',
    '/..%5csecret.txt',
  ],
  ...['/private\\..\\index.html', '/;/../secret.txt', '/a%2e.txt', '/link.txt', '/folder/secret.txt'],
  ...['/.env', '/%2eenv', '/.well-known/../secret.txt', '/.well-known/%2e%2e/%2e%2e/secret.txt'],
  ...['/auth%2fsession', '/AUTH/session', '/private/../auth/session', '/x/../auth/session'],
  ...['/auth/shadow.txt', '/%61uth/shadow.txt'],
]

t.test('no form of a path reads what is outside the build, hidden or below the own paths', async (t) => {
  const base = t.testdir({ build: { private: {}, auth: {} } })
  const build = join(base, 'build')
  const files = {
    ...{ '../secret.txt': 'OUTSIDE', 'index.html': 'INDEX', 'private/x.txt': 'INSIDE', '.env': 'HIDDEN' },
    ...{ 'auth/session': 'SHADOW', 'auth/shadow.txt': 'SHADOW', 'a%2e.txt': 'PERCENT', 'v.txt': 'PLAIN' },
  }
  for (const [name, text] of Object.entries(files)) writeFileSync(join(build, name), text)
  mkdirSync(join(base, 'outside'))
  writeFileSync(join(base, 'outside/secret.txt'), 'OUTSIDE')
  for (const [target, name] of [
    ['secret.txt', 'link.txt'],
    ['secret.txt', 'v.txt.br'],
    ['outside', 'folder'],
  ] as const)
    symlinkSync(join(base, target), join(build, name))

  const platform = { authUrl: 'http://127.0.0.1:9', baseUrl: 'http://127.0.0.1:9' }
  const bff = await startBff(t, platform, { STATIC_DIR: build })
  const get = (target: string) => ask(portOf(bff), { target, headers: [['Accept-Encoding', 'br']] })
  for (const path of NOT_FOUND) {
    const answer = await get(path)
    t.equal(answer.status, 404, path)
    t.notMatch(answer.body, /INDEX|INSIDE|HIDDEN|OUTSIDE|SHADOW|PERCENT/, path)
  }

  const plain = await get('/v.txt')
  t.equal(plain.body, 'PLAIN', 'a compressed form that is a link out of the build is not used')
  t.notOk(field(plain, 'content-encoding'))
  t.equal((await get('/private/x.txt')).body, 'INSIDE')
  t.equal((await get('/a%252e.txt')).body, 'PERCENT', 'decoded once')
  for (const path of ['/auth/session', '/%61uth/session'])
    t.match(JSON.parse((await get(path)).body), { authenticated: false }, path)
})
