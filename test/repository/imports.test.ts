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

/** A file, its code, the file that this imports, and the rule that it breaks. */
const FORBIDDEN = [
  // Sideways between two folders that serve routes.
  [
    'src/login/start.ts',
    "import { a } from '../proxy/forward.ts'",
    'src/proxy/forward.ts',
    'login must not import proxy',
  ],
  // Up, as a type, by a dynamic import and by a re-export.
  [
    'src/store/store.ts',
    "import type { A } from '../session/cookies.ts'",
    'src/session/cookies.ts',
    'store must not import session',
  ],
  ['src/store/redis/store.ts', "await import('../../app.ts')", 'src/app.ts', 'store must not import app'],
  [
    'src/config/kinds.ts',
    "export { a } from '../oauth/client.ts'",
    'src/oauth/client.ts',
    'config must not import oauth',
  ],
  // Past the process that it starts, and between programs.
  ['src/main.ts', "import './app.ts'", 'src/app.ts', 'main must not import app'],
  ['src/app.ts', "import '../sandbox/main.ts'", 'sandbox/main.ts', 'app must not import sandbox'],
  ['sandbox/main.ts', "import '../src/errors.ts'", 'src/errors.ts', 'sandbox must not import errors'],
] as const

t.test('each import that breaks a rule is reported in one sentence', async (t) => {
  for (const [file, code, target, rule] of FORBIDDEN) {
    const tree = new Map([
      [file, code],
      [target, ''],
    ])
    t.strictSame(findBadArrows(tree), [`${file} imports ${target}: ${rule}.`], rule)
  }
  const cases: { name: string; tree: Record<string, string>; faults: string[] }[] = [
    {
      name: 'of a library outside the files that may import it',
      tree: {
        'src/tokens/a.ts': `import * as oauth from 'openid-client'`,
        'src/store/redis/b.ts': `import type { Redis } from 'ioredis'`,
        'src/http/c.ts': `import { trace } from '@opentelemetry/api'`,
      },
      faults: [
        'src/tokens/a.ts imports openid-client: only src/oauth/ may import it.',
        'src/store/redis/b.ts imports ioredis: only src/store/redis/connection.ts and src/store/redis/sentinels.ts may import it.',
        'src/http/c.ts imports @opentelemetry/api: only src/tracing/ may import it.',
      ],
    },
    {
      name: 'in a cycle inside one folder',
      tree: {
        'src/store/a.ts': `import './b.ts'`,
        'src/store/b.ts': `import './c.ts'`,
        'src/store/c.ts': `import './a.ts'`,
      },
      faults: ['Imports form a cycle: src/store/a.ts -> src/store/b.ts -> src/store/c.ts -> src/store/a.ts.'],
    },
    {
      name: 'a barrel',
      tree: { 'src/store/index.ts': '' },
      faults: ['src/store/index.ts is a barrel: import the file itself.'],
    },
    {
      name: 'a folder without rules',
      tree: { 'src/utils/text.ts': '' },
      faults: [
        'src/utils/text.ts is in no known folder: add "utils" to MAY_IMPORT in test/repository/arrows.ts.',
      ],
    },
    {
      name: 'of a file that does not exist, and of a test',
      tree: { 'src/errors.ts': `import './gone.ts'\nimport '../test/helpers/redis.ts'` },
      faults: [
        'src/errors.ts imports ./gone.ts, which is no file of a program.',
        'src/errors.ts imports ../test/helpers/redis.ts, which is no file of a program.',
      ],
    },
    {
      name: 'nothing: imports of lower layers and of the same folder, and text in comments and strings',
      tree: {
        'src/main.ts': `import './process/replica.ts'`,
        'src/process/replica.ts': `import '../app.ts'`,
        'src/app.ts': `import './login/start.ts'\nimport './http/server.ts'`,
        'src/login/start.ts': `import '../tokens/tokens.ts'\nimport '../http/server.ts'\nimport './return-to.ts'`,
        'src/login/return-to.ts': `// import '../proxy/call.ts'\nconst text = "import '../proxy/call.ts'"`,
        'src/http/server.ts': `import '../secret.ts'`,
        'src/tokens/tokens.ts': `import '../session/session.ts'`,
        'src/session/session.ts': `import '../store/redis/connection.ts'\nimport '../secret.ts'`,
        'src/store/redis/connection.ts': `import { Redis } from 'ioredis'`,
        'src/secret.ts': `import { inspect } from 'node:util'`,
        'src/proxy/call.ts': '',
      },
      faults: [],
    },
  ]
  for (const { name, tree, faults } of cases) {
    t.strictSame(findBadArrows(new Map(Object.entries(tree))), faults, name)
  }
})
