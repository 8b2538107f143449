import { readdirSync, readFileSync } from 'node:fs'
import { join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { findBadArrows } from './arrows.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

function readTree(): Map<string, string> {
  const names = ['src', 'sandbox', 'demo', 'client'].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .map((name) => `${folder}/${name.split(sep).join('/')}`),
  )
  return new Map(names.map((name) => [name, readFileSync(join(ROOT, name), 'utf8')]))
}

t.test('every import points to a lower layer or stays in its folder', async (t) => {
  const tree = readTree()
  t.ok(tree.has('src/errors.ts'), 'the tree is not empty')
  t.strictSame(findBadArrows(tree), [])
})

/** A tree, and what is reported of it. */
const CASES: [what: string, tree: Record<string, string>, ...faults: string[]][] = [
  [
    'an import sideways',
    { 'src/login/a.ts': `import { a } from '../proxy/b.ts'`, 'src/proxy/b.ts': '' },
    'src/login/a.ts imports src/proxy/b.ts: login must not import proxy.',
  ],
  [
    'an import up, as a type',
    { 'src/store/a.ts': `import type { A } from '../session/b.ts'`, 'src/session/b.ts': '' },
    'src/store/a.ts imports src/session/b.ts: store must not import session.',
  ],
  [
    'a dynamic import',
    { 'src/store/redis/a.ts': `await import('../../app.ts')`, 'src/app.ts': '' },
    'src/store/redis/a.ts imports src/app.ts: store must not import app.',
  ],
  [
    'a re-export',
    { 'src/config/a.ts': `export { a } from '../oauth/b.ts'`, 'src/oauth/b.ts': '' },
    'src/config/a.ts imports src/oauth/b.ts: config must not import oauth.',
  ],
  [
    'an import of another program',
    { 'src/app.ts': `import '../sandbox/main.ts'`, 'sandbox/main.ts': '' },
    'src/app.ts imports sandbox/main.ts: app must not import sandbox.',
  ],
  [
    'a library outside the files that may import it',
    {
      'src/tokens/a.ts': `import 'openid-client'`,
      'src/store/redis/b.ts': `import type { Redis } from 'ioredis'`,
    },
    'src/tokens/a.ts imports openid-client: only src/oauth/ may import it.',
    'src/store/redis/b.ts imports ioredis: only src/store/redis/connection.ts and src/store/redis/sentinels.ts may import it.',
  ],
  [
    'a cycle inside one folder',
    { 'src/store/a.ts': `import './b.ts'`, 'src/store/b.ts': `import './a.ts'` },
    'Imports form a cycle: src/store/a.ts -> src/store/b.ts -> src/store/a.ts.',
  ],
  ['a barrel', { 'src/store/index.ts': '' }, 'src/store/index.ts is a barrel: import the file itself.'],
  [
    'a folder without rules',
    { 'src/utils/text.ts': '' },
    'src/utils/text.ts is in no known folder: add "utils" to MAY_IMPORT in test/repository/arrows.ts.',
  ],
  [
    'a file that is no part of a program',
    { 'src/errors.ts': `import '../test/helpers/redis.ts'` },
    'src/errors.ts imports ../test/helpers/redis.ts, which is no file of a program.',
  ],
  [
    'nothing: a lower layer, the same folder, and text in comments and strings',
    {
      'src/app.ts': `import './login/start.ts'`,
      'src/login/start.ts': `import '../http/server.ts'\nimport './return-to.ts'`,
      'src/login/return-to.ts': `// import '../proxy/call.ts'\nconst text = "import '../proxy/call.ts'"`,
      'src/http/server.ts': `import { inspect } from 'node:util'`,
      'src/store/redis/connection.ts': `import { Redis } from 'ioredis'`,
      'src/proxy/call.ts': '',
    },
  ],
]

t.test('each import that breaks a rule is reported in one sentence', async (t) => {
  for (const [what, tree, ...faults] of CASES)
    t.strictSame(findBadArrows(new Map(Object.entries(tree))), faults, what)
})
