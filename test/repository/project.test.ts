import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { testFilesAt } from '../helpers/together.ts'
import { PAGES, ROOT, read } from './files.ts'

interface Manifest {
  readonly scripts: Record<string, string>
  readonly dependencies: Record<string, string>
  readonly devDependencies: Record<string, string>
  readonly overrides: Record<string, unknown>
}

const manifest = JSON.parse(read('package.json')) as Manifest

t.test('every dependency is pinned to one version', async (t) => {
  // An override by package may point to a dependency of ours, as in `$typescript`.
  const overrides = Object.entries(manifest.overrides).filter(([, version]) => typeof version === 'string')
  const example = JSON.parse(read('examples/vite/package.json')) as Manifest
  const own = { ...manifest.dependencies, ...manifest.devDependencies, ...Object.fromEntries(overrides) }
  const all = { ...own, ...example.devDependencies }
  t.ok(Object.keys(all).length > 0)
  for (const [name, version] of Object.entries(all)) {
    t.match(version, /^\d+\.\d+\.\d+$/, `${name} is pinned`)
  }
})

t.test(
  'the packages of the server that declare a newer Node than ours are named with what tests them',
  async (t) => {
    const { packages } = JSON.parse(read('package-lock.json')) as {
      packages: Record<string, { version: string; dev?: true; engines?: { node?: string } }>
    }
    // As 20.19 is read by the ranges that packages declare: `>=22`, `^20.19.0 || >=22`, `18 || 20`.
    const takes = (range: string) =>
      range.split('||').some((part) => {
        const [, operator = '', major = '0', minor = '0'] =
          /^\s*(>=?|\^|~)?\s*v?(\d+)(?:\.(\d+))?/.exec(part) ?? []
        return operator.startsWith('>')
          ? Number(major) < 20 || (major === '20' && Number(minor) <= 19)
          : major === '20'
      })
    const newer = Object.entries(packages).filter(
      ([path, { dev, engines }]) => path !== '' && !dev && !takes(engines?.node ?? '>=0'),
    )
    const [row = ''] = /^.*EBADENGINE.*$/m.exec(read('docs/troubleshooting.md')) ?? []
    t.strictSame(
      newer.map(([path, { version }]) => `\`${path.split('node_modules/').at(-1)}\` ${version}`).sort(),
      (row.match(/`[\w-]+` \d+\.\d+\.\d+/g) ?? []).sort(),
    )
    t.match(read('.github/workflows/ci.yml'), /node: \[20, /)
  },
)

t.test('every npm script that a page tells the reader to run exists', async (t) => {
  const told = new Set<string>()
  for (const page of PAGES) {
    for (const [, name] of read(page).matchAll(/\bnpm run ([a-z][a-z:-]*)/g)) told.add(name ?? '')
  }
  t.ok(told.has('demo'), 'the quick start was read')
  const example = JSON.parse(read('examples/vite/package.json')) as Manifest
  const scripts = { ...manifest.scripts, ...example.scripts }
  for (const name of told) t.type(scripts[name], 'string', `npm run ${name}`)
})

/** The anchors of a page, as GitHub makes them of its headings. */
function anchorsOf(path: string): string[] {
  const headings = readFileSync(path, 'utf8').matchAll(/^#+ (.+)$/gm)
  return [...headings].map(([, text = '']) =>
    text
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-'),
  )
}

t.test('every relative link of a page leads to a file, and its anchor to a heading', async (t) => {
  for (const page of PAGES) {
    for (const [, target = '', anchor] of read(page).matchAll(/\]\(([^)#\s]*)(?:#([^)]*))?\)/g)) {
      if (/^[a-z]+:/.test(target)) continue
      const path = target === '' ? `${ROOT}/${page}` : join(ROOT, dirname(page), target)
      t.ok(existsSync(path), `${page} links to ${target}`)
      if (anchor !== undefined && path.endsWith('.md') && existsSync(path))
        t.ok(anchorsOf(path).includes(anchor), `${page} links to ${target}#${anchor}`)
    }
  }
})

t.test('every source file that a page names with its folder exists', async (t) => {
  let named = 0
  for (const page of PAGES) {
    for (const [path] of read(page).matchAll(/(?<![\w./-])[\w-]+(?:\/[\w.-]+)+\.(?:ts|lua|mjs)\b/g)) {
      named += 1
      t.ok(existsSync(`${ROOT}/${path}`) || existsSync(`${ROOT}/src/${path}`), `${page} names ${path}`)
    }
  }
  t.ok(named > 20, `${named} files`)
})

t.test('the image holds Node 24, the bundle and its compiled code, for another user than root', async (t) => {
  const stages = read('Dockerfile')
    .split(/^(?=FROM )/m)
    .slice(1)
  const last = stages.pop() ?? ''
  for (const stage of stages) t.match(stage, /^FROM node:24/)
  t.match(last, /^FROM debian:bookworm-slim/)
  t.strictSame(last.match(/^USER .*$/gm), ['USER 1000:1000'])
  for (const line of [
    /^ENV NODE_ENV=production NODE_COMPILE_CACHE=\/app\/compiled$/m,
    /^STOPSIGNAL SIGTERM$/m,
    /^HEALTHCHECK [\s\S]*\/livez/m,
    /^CMD \["node", "dist\/main\.js"\]$/m,
  ])
    t.match(last, line)
  t.notMatch(last, /npm|node_modules/, 'nothing is installed in the stage that is shipped')
})

t.test('no service of the compose file is privileged or reachable from other machines', async (t) => {
  const text = read('docker-compose.yml')
  t.notMatch(text, /privileged: true/)
  const published = [...text.matchAll(/^ +ports: (.*)$/gm)]
  t.ok(published.length > 0)
  for (const [, ports] of published) t.match(ports, /^\["127\.0\.0\.1:/)
})

t.test('each decision has the headings of the first, on at most forty lines', async (t) => {
  const names = readdirSync(`${ROOT}/docs/decisions`).sort()
  const headings = (name: string) =>
    [...read(`docs/decisions/${name}`).matchAll(/^## (.*)$/gm)].map(([, heading]) => heading)
  const required = headings(names[0]!)
  for (const name of names) {
    const found = headings(name).filter((heading) => required.includes(heading))
    t.strictSame(found, required, name)
    t.ok(read(`docs/decisions/${name}`).split('\n').length - 1 <= 40, name)
  }
})

/** A pattern of .taprc with `{…}`, `*` and `**` as a regular expression. */
function patternOf(glob: string): RegExp {
  const meanings = { '**/': '(?:.*/)?', '**': '.*', '*': '[^/]*', '{': '(?:', '}': ')', ',': '|' }
  const parts = glob
    .split(/(\*\*\/|\*\*|[*{},])/)
    .map((part) => meanings[part as keyof typeof meanings] ?? part.replaceAll('.', '\\.'))
  return new RegExp(`^${parts.join('')}$`)
}

t.test('npm test and npm run verify run every test file, and none of them twice', async (t) => {
  const { include, exclude } = parse(read('.taprc')) as Record<'include' | 'exclude', string[]>
  const isMatch = (globs: string[], name: string) =>
    globs.some((glob) => patternOf(glob).test(`test/${name}`))
  const names = readdirSync(`${ROOT}/test`, { recursive: true, encoding: 'utf8' })
  const started = names.filter((name) => isMatch(include, name) && !isMatch(exclude, name))
  const alone = started.filter((name) => name.endsWith('.test.ts'))
  const together = started
    .filter((name) => !name.endsWith('.test.ts'))
    .flatMap((name) => [...read(`test/${name}`).matchAll(/'([a-z./-]+)'[,)]/g)].map(([, place]) => place!))
  t.ok(alone.length > 0 && together.length > 0, 'both lists were found')
  const verified = names.filter((name) => /^verify\/[\w-]+\.test\.ts$/.test(name))
  t.equal(manifest.scripts.verify, 'node test/setup/verify.mjs')
  t.match(read('test/setup/verify.mjs'), /`test\/verify\/\$\{name\}\.test\.ts`/)
  const run = [...alone, ...together.flatMap(testFilesAt), ...verified]
  t.strictSame(run.sort(), names.filter((name) => name.endsWith('.test.ts')).sort())
})

t.test('the README has at most 1,200 words, and the index of docs/ has every page', async (t) => {
  const words = read('README.md').match(/\S+/g)?.length ?? 0
  t.ok(words > 0 && words <= 1200, `${words} words`)
  const index = read('docs/README.md')
  for (const name of readdirSync(`${ROOT}/docs`).filter((file) => file.endsWith('.md'))) {
    if (name !== 'README.md') t.match(index, `](${name})`, name)
  }
})
