import { posix } from 'node:path'
import t from 'tap'
import ts from 'typescript'
import { filesBelow, read } from './files.ts'

/** Path in the repository to the text of the file. */
type Tree = ReadonlyMap<string, string>

/** A folder of src, the name of a file at its top without extension, or a program beside src. */
type Folder = string

// Every folder may import these. They import only each other.
const GROUND = [
  'clock',
  'config',
  'egress',
  'errors',
  'json',
  'keyring',
  'log',
  'packed-text',
  'log-text',
  'paths',
  'secret',
  'stdout',
  'timeout',
  'version',
]

const ROUTES = ['login', 'ops', 'proxy', 'spa']

/** The folders that a folder may import besides itself. A folder in no list is never imported. */
const MAY_IMPORT: Readonly<Record<Folder, readonly Folder[]>> = {
  main: ['process', ...GROUND],
  process: ['app', 'ops', ...GROUND],
  // Programs of their own.
  operator: ['oauth', 'process', 'proxy', 'vault', ...GROUND],
  app: ['http', 'tracing', 'oauth', 'vault', ...ROUTES, ...GROUND],
  ...each(ROUTES, ['http', 'oauth', 'vault', ...GROUND]),
  // Only types, and only the application imports it: lazily, so that it costs nothing where it is off.
  tracing: ['http', 'proxy', 'oauth', 'vault', ...GROUND],
  vault: ['http', 'oauth', ...GROUND],
  http: GROUND,
  oauth: GROUND,
  ...each(GROUND, GROUND),
  // The launcher starts processes, the sandbox is another server, the demo page and the client run in the browser.
  demo: ['version'],
  // It reads the same file of declared operations.
  sandbox: ['config', 'version'],
  'demo/page': ['client'],
  client: [],
}

/** Folders that the others see through one file alone. */
const DOORS: Readonly<Record<Folder, string>> = { vault: 'src/vault/vault.ts' }

/** Packages, and scopes of packages: the beginning of each file that may import them. */
const ONLY_IN: Readonly<Record<string, readonly string[]>> = {
  'openid-client': ['src/oauth/'],
  ioredis: ['src/vault/store/redis/connection.ts', 'src/vault/store/redis/sentinels.ts'],
  '@opentelemetry': ['src/tracing/'],
}

/** One sentence for each import that breaks a rule; empty when all rules hold. */
function findBadArrows(tree: Tree): string[] {
  const faults: string[] = []
  const edges = new Map<string, string[]>()
  for (const [file, text] of tree) {
    const folder = folderOf(file)
    const allowed = MAY_IMPORT[folder]
    if (allowed === undefined) faults.push(`${file} is in no known folder: add "${folder}" to MAY_IMPORT.`)
    if (posix.basename(file) === 'index.ts') faults.push(`${file} is a barrel: import the file itself.`)

    const targets: string[] = []
    for (const specifier of importsOf(text)) {
      if (!specifier.startsWith('.')) {
        faults.push(...packageFaults(file, specifier))
        continue
      }
      // The client names its modules as its package has them.
      const name = folder === 'client' ? specifier.replace(/\.js$/, '.ts') : specifier
      const target = posix.join(posix.dirname(file), name)
      if (!tree.has(target)) {
        faults.push(`${file} imports ${specifier}, which is no file of a program.`)
        continue
      }
      targets.push(target)
      const into = folderOf(target)
      if (into !== folder && allowed !== undefined && !allowed.includes(into))
        faults.push(`${file} imports ${target}: ${folder} must not import ${into}.`)
      const door = DOORS[into]
      if (into !== folder && door !== undefined && target !== door)
        faults.push(`${file} imports ${target}: other folders see ${into} through ${door} alone.`)
    }
    edges.set(file, targets)
  }
  const cycle = findCycle(edges)
  if (cycle !== null) faults.push(`Imports form a cycle: ${cycle.join(' -> ')}.`)
  return faults
}

function packageFaults(file: string, specifier: string): string[] {
  const [name = ''] = specifier.split('/')
  const only = ONLY_IN[name]
  if (only === undefined || only.some((place) => file.startsWith(place))) return []
  return [`${file} imports ${name}: only ${only.join(' and ')} may import it.`]
}

function folderOf(file: string): Folder {
  if (file.startsWith('demo/page/')) return 'demo/page'
  const [first = '', second = ''] = file.split('/')
  return first === 'src' ? second.replace(/\.ts$/, '') : first
}

// The compiler's scan finds static, dynamic, type-only and re-exporting imports, and ignores comments and strings.
function importsOf(text: string): string[] {
  return ts.preProcessFile(text, true, true).importedFiles.map((found) => found.fileName)
}

function findCycle(edges: ReadonlyMap<string, readonly string[]>): string[] | null {
  const done = new Set<string>()
  const visit = (file: string, path: readonly string[]): string[] | null => {
    const seenAt = path.indexOf(file)
    if (seenAt >= 0) return [...path.slice(seenAt), file]
    if (done.has(file)) return null
    for (const target of edges.get(file) ?? []) {
      const cycle = visit(target, [...path, file])
      if (cycle !== null) return cycle
    }
    done.add(file)
    return null
  }
  for (const file of edges.keys()) {
    const cycle = visit(file, [])
    if (cycle !== null) return cycle
  }
  return null
}

function each(folders: readonly Folder[], allowed: readonly Folder[]): Record<Folder, readonly Folder[]> {
  return Object.fromEntries(folders.map((folder) => [folder, allowed]))
}

t.test('every import points to a lower layer or stays in its folder', async (t) => {
  const files = ['src', 'operator', 'sandbox', 'demo', 'client'].flatMap((folder) =>
    filesBelow(folder, '.ts'),
  )
  t.ok(files.includes('src/errors.ts'), 'the tree is not empty')
  t.strictSame(findBadArrows(new Map(files.map((name) => [name, read(name)]))), [])
})

t.test('each import that breaks a rule is reported in one sentence', async (t) => {
  const tree = {
    // These break no rule.
    'src/app.ts': `import './login/start.ts'`,
    'src/login/start.ts': `import { inspect } from 'node:util'\nimport './return-to.ts'`,
    'src/ops/ready.ts': `import '../vault/vault.ts'`,
    'src/vault/vault.ts': `import './store/redis/connection.ts'`,
    'src/login/return-to.ts': `// import '../proxy/b.ts'\nconst text = "import '../proxy/b.ts'"`,
    'src/vault/store/redis/connection.ts': `import { Redis } from 'ioredis'`,
    'src/proxy/b.ts': '',
    'src/oauth/b.ts': '',
    'sandbox/main.ts': '',
    // Each of these breaks one.
    'src/login/a.ts': `import { a } from '../proxy/b.ts'`,
    'src/ops/a.ts': `import type { Session } from '../vault/session.ts'`,
    'src/vault/session.ts': '',
    'src/vault/store/redis/a.ts': `await import('../../../app.ts')`,
    'src/oauth/a.ts': `import type { A } from '../login/a.ts'`,
    'src/config/a.ts': `export { a } from '../oauth/b.ts'`,
    'src/proxy/a.ts': `import '../../sandbox/main.ts'`,
    'src/vault/a.ts': `import 'openid-client'`,
    'src/vault/b.ts': `import type { Redis } from 'ioredis'`,
    'src/vault/index.ts': '',
    'src/utils/text.ts': '',
    'src/errors.ts': `import '../test/helpers/redis.ts'`,
    'src/vault/c.ts': `import './d.ts'`,
    'src/vault/d.ts': `import './c.ts'`,
  }
  t.strictSame(findBadArrows(new Map(Object.entries(tree))), [
    'src/login/a.ts imports src/proxy/b.ts: login must not import proxy.',
    'src/ops/a.ts imports src/vault/session.ts: other folders see vault through src/vault/vault.ts alone.',
    'src/vault/store/redis/a.ts imports src/app.ts: vault must not import app.',
    'src/oauth/a.ts imports src/login/a.ts: oauth must not import login.',
    'src/config/a.ts imports src/oauth/b.ts: config must not import oauth.',
    'src/proxy/a.ts imports sandbox/main.ts: proxy must not import sandbox.',
    'src/vault/a.ts imports openid-client: only src/oauth/ may import it.',
    'src/vault/b.ts imports ioredis: only src/vault/store/redis/connection.ts and src/vault/store/redis/sentinels.ts may import it.',
    'src/vault/index.ts is a barrel: import the file itself.',
    'src/utils/text.ts is in no known folder: add "utils" to MAY_IMPORT.',
    'src/errors.ts imports ../test/helpers/redis.ts, which is no file of a program.',
    'Imports form a cycle: src/vault/c.ts -> src/vault/d.ts -> src/vault/c.ts.',
  ])
})
