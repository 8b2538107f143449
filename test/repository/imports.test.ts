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

t.test('every import of src points to a lower layer or stays in its folder', async (t) => {
  const tree = readTree()
  t.ok(tree.has('errors.ts'), 'the tree is not empty')
  t.strictSame(findBadArrows(tree), [])
})

t.test('each import that breaks a rule is reported in one sentence', async (t) => {
  const cases: { name: string; tree: Record<string, string>; faults: string[] }[] = [
    {
      name: 'sideways between two folders that serve routes',
      tree: { 'login/start.ts': `import { a } from '../proxy/forward.ts'`, 'proxy/forward.ts': '' },
      faults: ['src/login/start.ts imports src/proxy/forward.ts: login must not import proxy.'],
    },
    {
      name: 'up from the store to the session, as a type',
      tree: { 'store/store.ts': `import type { A } from '../session/cookies.ts'`, 'session/cookies.ts': '' },
      faults: ['src/store/store.ts imports src/session/cookies.ts: store must not import session.'],
    },
    {
      name: 'up, by a dynamic import',
      tree: { 'store/redis/store.ts': `await import('../../app.ts')`, 'app.ts': '' },
      faults: ['src/store/redis/store.ts imports src/app.ts: store must not import app.'],
    },
    {
      name: 'from http to a folder other than the ground',
      tree: { 'http/openapi.ts': `import '../session/session.ts'`, 'session/session.ts': '' },
      faults: ['src/http/openapi.ts imports src/session/session.ts: http must not import session.'],
    },
    {
      name: 'from main past the process that it starts',
      tree: { 'main.ts': `import './app.ts'`, 'app.ts': '' },
      faults: ['src/main.ts imports src/app.ts: main must not import app.'],
    },
    {
      name: 'from the ground to a folder, by a re-export',
      tree: { 'config/kinds.ts': `export { a } from '../oauth/client.ts'`, 'oauth/client.ts': '' },
      faults: ['src/config/kinds.ts imports src/oauth/client.ts: config must not import oauth.'],
    },
    {
      name: 'between the server and the sandbox, in both directions',
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
      name: 'from the launcher of the demo to the server',
      tree: { 'demo.ts': `import './main.ts'`, 'main.ts': '' },
      faults: ['src/demo.ts imports src/main.ts: demo must not import main.'],
    },
    {
      name: 'from the page in the browser to the folder that serves it',
      tree: { 'spa/demo/page.ts': `import '../routes.ts'`, 'spa/routes.ts': '' },
      faults: ['src/spa/demo/page.ts imports src/spa/routes.ts: spa/demo must not import spa.'],
    },
    {
      name: 'of a library outside the one folder that may import it',
      tree: {
        'tokens/a.ts': `import * as oauth from 'openid-client'`,
        'ops/b.ts': `import { Redis } from 'ioredis'`,
        'http/c.ts': `import { trace } from '@opentelemetry/api'`,
      },
      faults: [
        'src/tokens/a.ts imports openid-client: only oauth may import it.',
        'src/ops/b.ts imports ioredis: only store may import it.',
        'src/http/c.ts imports @opentelemetry/api: only tracing may import it.',
      ],
    },
    {
      name: 'in a cycle inside one folder',
      tree: {
        'store/a.ts': `import './b.ts'`,
        'store/b.ts': `import './c.ts'`,
        'store/c.ts': `import './a.ts'`,
      },
      faults: ['Imports form a cycle: store/a.ts -> store/b.ts -> store/c.ts -> store/a.ts.'],
    },
    {
      name: 'a barrel',
      tree: { 'store/index.ts': '' },
      faults: ['src/store/index.ts is a barrel: import the file itself.'],
    },
    {
      name: 'a folder without rules',
      tree: { 'utils/text.ts': '' },
      faults: [
        'src/utils/text.ts is in no known folder: add "utils" to MAY_IMPORT in test/repository/arrows.ts.',
      ],
    },
    {
      name: 'of a file that does not exist, and of one outside src',
      tree: { 'errors.ts': `import './gone.ts'\nimport '../test/helpers/redis.ts'` },
      faults: [
        'src/errors.ts imports ./gone.ts, which does not exist.',
        'src/errors.ts imports ../test/helpers/redis.ts, which is outside src.',
      ],
    },
    {
      name: 'nothing: imports of lower layers and of the same folder, and text in comments and strings',
      tree: {
        'main.ts': `import './process/replica.ts'`,
        'process/replica.ts': `import '../app.ts'`,
        'app.ts': `import './login/start.ts'\nimport './http/server.ts'`,
        'login/start.ts': `import '../tokens/tokens.ts'\nimport '../http/server.ts'\nimport './return-to.ts'`,
        'login/return-to.ts': `// import '../proxy/call.ts'\nconst text = "import '../proxy/call.ts'"`,
        'http/server.ts': `import '../secret.ts'`,
        'tokens/tokens.ts': `import '../session/session.ts'`,
        'session/session.ts': `import '../store/redis/store.ts'\nimport '../secret.ts'`,
        'store/redis/store.ts': `import { Redis } from 'ioredis'`,
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
