import { readdirSync, readFileSync } from 'node:fs'
import { join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { findBadArrows } from './arrows.ts'

const SRC = fileURLToPath(new URL('../../src', import.meta.url))

function readTree(): Map<string, string> {
  const names = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'))
  return new Map(names.map((name) => [name.split(sep).join('/'), readFileSync(join(SRC, name), 'utf8')]))
}

t.test('every import of src goes down or stays in its room', async (t) => {
  const tree = readTree()
  t.ok(tree.has('errors.ts'), 'the tree was read')
  t.strictSame(findBadArrows(tree), [])
})

t.test('a bad arrow is named in a sentence', async (t) => {
  const cases: { name: string; tree: Record<string, string>; faults: string[] }[] = [
    {
      name: 'sideways between rooms that speak HTTP',
      tree: { 'login/start.ts': `import { a } from '../proxy/call.ts'`, 'proxy/call.ts': '' },
      faults: ['src/login/start.ts imports src/proxy/call.ts: login must not import proxy.'],
    },
    {
      name: 'sideways between session and tokens, as a type',
      tree: { 'tokens/seal.ts': `import type { A } from '../session/cookie.ts'`, 'session/cookie.ts': '' },
      faults: ['src/tokens/seal.ts imports src/session/cookie.ts: tokens must not import session.'],
    },
    {
      name: 'up, and dynamically',
      tree: { 'store/redis.ts': `await import('../app.ts')`, 'app.ts': '' },
      faults: ['src/store/redis/store.ts imports src/app.ts: store must not import app.'],
    },
    {
      name: 'from the ground into a room, by an export',
      tree: { 'config/urls.ts': `export { a } from '../oauth/scope.ts'`, 'oauth/scope.ts': '' },
      faults: ['src/config/urls.ts imports src/oauth/scope.ts: config must not import oauth.'],
    },
    {
      name: 'the server imports the sandbox, and the sandbox the server',
      tree: {
        'app.ts': `import './sandbox/main.ts'`,
        'sandbox/main.ts': `import { problem } from '../errors.ts'`,
        'errors.ts': '',
      },
      faults: [
        'src/app.ts imports src/sandbox/main.ts: app must not import sandbox.',
        'src/sandbox/main.ts imports src/errors.ts: sandbox must not import errors.',
      ],
    },
    {
      name: 'the launcher of the demo imports the server',
      tree: { 'demo.ts': `import './main.ts'`, 'main.ts': '' },
      faults: ['src/demo.ts imports src/main.ts: demo must not import main.'],
    },
    {
      name: 'the page in the browser imports the room that serves it',
      tree: { 'spa/demo/page.ts': `import '../headers.ts'`, 'spa/headers.ts': '' },
      faults: ['src/spa/demo/page.ts imports src/spa/headers.ts: spa/demo must not import spa.'],
    },
    {
      name: 'a library outside the one room that may know it',
      tree: {
        'tokens/a.ts': `import * as oauth from 'openid-client'`,
        'ops/b.ts': `import { Redis } from 'ioredis'`,
      },
      faults: [
        'src/tokens/a.ts imports openid-client: only oauth may import it.',
        'src/ops/b.ts imports ioredis: only store may import it.',
      ],
    },
    {
      name: 'a circle inside one room',
      tree: {
        'store/a.ts': `import './b.ts'`,
        'store/b.ts': `import './c.ts'`,
        'store/c.ts': `import './a.ts'`,
      },
      faults: ['Imports go in a circle: store/a.ts -> store/b.ts -> store/c.ts -> store/a.ts.'],
    },
    {
      name: 'a barrel',
      tree: { 'store/index.ts': '' },
      faults: ['src/store/index.ts is a barrel: import the file that is meant.'],
    },
    {
      name: 'a room without a place',
      tree: { 'utils/text.ts': '' },
      faults: ['src/utils/text.ts is in no known room: give "utils" its place among the arrows.'],
    },
    {
      name: 'a file that is not there, and one outside of src',
      tree: { 'errors.ts': `import './gone.ts'\nimport '../test/helpers/redis.ts'` },
      faults: [
        'src/errors.ts imports ./gone.ts, which does not exist.',
        'src/errors.ts imports ../test/helpers/redis.ts, which is outside of src.',
      ],
    },
    {
      name: 'nothing bad: down the floors, within a room, and words in a comment',
      tree: {
        'main.ts': `import './app.ts'`,
        'app.ts': `import './login/start.ts'`,
        'login/start.ts': `import '../session/cookie.ts'\nimport './return-to.ts'`,
        'login/return-to.ts': `// import '../proxy/call.ts'\nconst text = "import '../proxy/call.ts'"`,
        'session/cookie.ts': `import '../store/redis.ts'\nimport '../secret.ts'`,
        'store/redis.ts': `import { Redis } from 'ioredis'`,
        'secret.ts': `import { inspect } from 'node:util'`,
        'proxy/call.ts': '',
      },
      faults: [],
    },
  ]
  for (const { name, tree, faults } of cases) {
    t.strictSame(findBadArrows(new Map(Object.entries(tree))), faults, name)
  }
})
