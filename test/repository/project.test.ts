import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

interface Manifest {
  readonly license: string
  readonly scripts: Record<string, string>
  readonly dependencies: Record<string, string>
  readonly devDependencies: Record<string, string>
  readonly overrides: Record<string, string>
}

function read(path: string): string {
  return readFileSync(`${ROOT}/${path}`, 'utf8')
}

function pages(): string[] {
  const docs = readdirSync(`${ROOT}/docs`, { recursive: true, encoding: 'utf8' })
  const inside = docs.filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`)
  return ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', ...inside]
}

const manifest = JSON.parse(read('package.json')) as Manifest

t.test('every dependency is pinned to one version', async (t) => {
  const all = { ...manifest.dependencies, ...manifest.devDependencies, ...manifest.overrides }
  t.ok(Object.keys(all).length > 0)
  for (const [name, version] of Object.entries(all)) {
    t.match(version, /^\d+\.\d+\.\d+$/, `${name} is pinned`)
  }
})

t.test('the license is MIT, in the manifest and as a text', async (t) => {
  t.equal(manifest.license, 'MIT')
  t.match(read('LICENSE'), /^MIT License\n\nCopyright \(c\) 2026 the authors of this project\n/)
})

t.test('every npm script that a page tells the reader to run exists', async (t) => {
  const told = new Set<string>()
  for (const page of pages()) {
    for (const [, name] of read(page).matchAll(/\bnpm run ([a-z][a-z:-]*)/g)) told.add(name ?? '')
  }
  t.ok(told.has('demo'), 'the quick start was read')
  for (const name of told) t.type(manifest.scripts[name], 'string', `npm run ${name}`)
})

t.test('every relative link of a page leads to a file', async (t) => {
  for (const page of pages()) {
    for (const [, target = ''] of read(page).matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)) {
      if (/^[a-z]+:/.test(target)) continue
      const url = new URL(target, new URL(page, `file://${ROOT}/`))
      t.doesNotThrow(() => readFileSync(url), `${page} links to ${target}`)
    }
  }
})

t.test('every source file that a page names with its folder exists', async (t) => {
  let named = 0
  for (const page of pages()) {
    for (const [path] of read(page).matchAll(/(?<![\w./-])[\w-]+(?:\/[\w.-]+)+\.(?:ts|lua|mjs)\b/g)) {
      named += 1
      t.ok(existsSync(`${ROOT}/${path}`) || existsSync(`${ROOT}/src/${path}`), `${page} names ${path}`)
    }
  }
  t.ok(named > 20, `${named} files`)
})

t.test(
  'the image runs Node 24 as another user than root, with production packages and a health check',
  async (t) => {
    const stages = read('Dockerfile').split(/^(?=FROM )/m)
    for (const stage of stages) t.match(stage, /^FROM node:24/)
    const last = stages.at(-1) ?? ''
    const users = [...last.matchAll(/^USER (\S+)$/gm)].map((found) => found[1])
    t.strictSame(users, ['node'])
    t.match(last, /^ENV NODE_ENV=production$/m)
    t.match(last, /^HEALTHCHECK [\s\S]*\/livez/m)
    t.match(last, /^CMD \["node", "dist\/main\.js"\]$/m)
    t.notMatch(last, /npm (ci|install)/, 'nothing is installed in the stage that is shipped')
    const dependencies = stages.find((stage) => / AS dependencies$/m.test(stage)) ?? ''
    t.match(dependencies, /npm ci --omit=dev --ignore-scripts/)
    t.match(last, /--from=dependencies \/app\/node_modules/)
    t.match(last, /--from=build \/app\/dist \.\/dist$/m, "with the operator's command, dist/sessions.js")
  },
)

t.test('no service of the compose file is privileged or reachable from other machines', async (t) => {
  const text = read('docker-compose.yml')
  t.notMatch(text, /privileged: true/)
  const published = [...text.matchAll(/^ +ports: (.*)$/gm)].map((found) => found[1])
  t.ok(published.length > 0)
  for (const ports of published) t.match(ports, /^\["127\.0\.0\.1:/)
})

t.test('each decision has the headings of the first, on at most forty lines', async (t) => {
  const names = readdirSync(`${ROOT}/docs/decisions`).sort()
  const headings = (name: string) =>
    [...read(`docs/decisions/${name}`).matchAll(/^## (.*)$/gm)].map(([, heading]) => heading)
  for (const name of names) {
    t.strictSame(
      headings(name).filter((heading) => headings(names[0]!).includes(heading)),
      headings(names[0]!),
      name,
    )
    t.ok(read(`docs/decisions/${name}`).split('\n').length - 1 <= 40, name)
  }
})

t.test('a signal to npm reaches the process that a script starts', async (t) => {
  for (const name of ['start', 'demo', 'sessions']) t.match(manifest.scripts[name], /^exec node dist\//, name)
})

t.test('npm test runs every folder of test files, and none of them twice', async (t) => {
  const names = readdirSync(`${ROOT}/test`, { recursive: true, encoding: 'utf8' })
  const folders = new Set(names.filter((name) => name.endsWith('.test.ts')).map((name) => dirname(name)))
  const alone = /"test\/\{([^}]*)\}\/\*\.test\.ts"/.exec(read('.taprc'))?.[1]?.split(',') ?? []
  const together = names
    .filter((name) => name !== 'helpers/together.ts' && basename(name) === 'together.ts')
    .flatMap((name) => [...read(`test/${name}`).matchAll(/'([a-z.]+)'[,)]/g)].map(([, folder]) => folder!))
  t.ok(alone.length > 0 && together.length > 0, 'both lists were found')
  t.strictSame([...alone, ...together].sort(), [...folders].sort())
})
