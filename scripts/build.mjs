// Makes dist/ with esbuild: one bundle for each program of the server, with chunks that they share or load late, the
// demo page's script and the browser client. `npm run typecheck` checks the types. With --if-possible it is the
// `prepare` step: an install without development packages keeps the dist/ that it has, and fails if that was made from other sources.
// --to FOLDER is for `npm run dev`: the server, the sandbox and the page, in another folder than dist/, with their packages
// where they are. --client FOLDER takes the browser client of another build.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const { values: options } = parseArgs({
  options: {
    'if-possible': { type: 'boolean' },
    to: { type: 'string', default: 'dist' },
    client: { type: 'string' },
  },
})
const root = dirname(dirname(fileURLToPath(import.meta.url)))
const lua = join(root, 'src/vault/store/redis/lua')
const page = join(root, 'demo/page')
const dist = join(root, options.to)
const isForDev = options.to !== 'dist'
/** Tells from which sources dist/ was built. */
const sources = join(dist, 'sources.txt')
/** Program below dist/ to its source. */
const programs = {
  main: 'src/main.ts',
  'sandbox/main': 'sandbox/main.ts',
  ...(!isForDev && {
    sessions: 'operator/sessions.ts',
    doctor: 'operator/doctor.ts',
    operations: 'operator/operations.ts',
    demo: 'demo/main.ts',
  }),
}

const esbuild = await import('esbuild').catch(() => null)
if (esbuild === null) {
  if (options['if-possible'] !== true) {
    console.error(missing('run the build again'))
    process.exit(1)
  }
  if (!existsSync(join(dist, 'main.js'))) explainMissing()
  else if (!existsSync(sources) || readFileSync(sources, 'utf8') !== hashOfSources()) {
    console.error('dist/ was built from other sources. To build it again: npm ci --include=dev')
    process.exit(1)
  }
  process.exit(0)
}

rmSync(dist, { recursive: true, force: true })
const { metafile } = await build({
  absWorkingDir: root,
  entryPoints: programs,
  outdir: dist,
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20.19',
  // All chunks lie in dist/ itself, so `import.meta.url` leads to the files below from each of them.
  chunkNames: '[name]-[hash]',
  // CommonJS packages call `require` for Node's own modules.
  banner: {
    js: "import { createRequire as createBundleRequire } from 'node:module'; const require = createBundleRequire(import.meta.url);",
  },
  sourcemap: true,
  sourcesContent: false,
  legalComments: 'none',
  logLevel: 'warning',
  metafile: true,
  // To bundle them at each change would take longer than to load them.
  ...(isForDev ? { packages: 'external' } : { plugins: [{ name: 'packages', setup: adaptPackages }] }),
})

const browser = { format: 'esm', target: 'es2022', logLevel: 'warning' }
await build({
  ...browser,
  entryPoints: [join(page, 'main.ts')],
  bundle: true,
  outdir: join(dist, 'demo'),
})
if (options.client === undefined) await buildClient()
else cpSync(join(root, options.client, 'client'), join(dist, 'client'), { recursive: true })

cpSync(lua, join(dist, 'lua'), { recursive: true })
cpSync(page, join(dist, 'demo'), { recursive: true, filter: (path) => extname(path) !== '.ts' })
writeFileSync(sources, hashOfSources())
writeFileSync(join(dist, 'revision.txt'), `${findRevision()}\n`)
writeFileSync(join(dist, 'licenses.txt'), licenses(Object.keys(metafile.inputs)))

/** A package for pages: `npm pack ./dist/client`. The server sends its first module too. */
async function buildClient() {
  const modules = ['bff-client', 'react', 'vue']
  await build({
    ...browser,
    entryPoints: modules.map((name) => join(root, `client/${name}.ts`)),
    outdir: join(dist, 'client'),
  })
  // An import would first search all of it for its exports, which takes longer than the rest of the build.
  const typescript = createRequire(import.meta.url)('typescript')
  for (const name of modules) {
    const source = readFileSync(join(root, `client/${name}.ts`), 'utf8')
    // `npm run typecheck` has checked the types.
    const { outputText } = typescript.transpileDeclaration(source, { fileName: `${name}.ts` })
    writeFileSync(join(dist, `client/${name}.d.ts`), outputText)
  }
  for (const name of ['package.json', 'README.md'])
    cpSync(join(root, 'client', name), join(dist, 'client', name))
  cpSync(join(root, 'LICENSE'), join(dist, 'client/LICENSE'))
}

/** esbuild itself prints what is wrong with the sources. */
async function build(what) {
  return await esbuild.build(what).catch(() => process.exit(1))
}

function adaptPackages({ onResolve, onLoad }) {
  onResolve({ filter: /^undici$/ }, () => ({ path: join(root, 'scripts/undici.mjs') }))
  // @fastify/swagger could write YAML too. Nobody asks for it, and loading `yaml` takes a tenth of a start.
  onResolve({ filter: /^yaml$/ }, ({ path }) => ({ path, namespace: 'unused' }))
  onLoad({ filter: /.*/, namespace: 'unused' }, () => ({ contents: '' }))
  // An ES import of a module of Node loads all that it may export: fetch for node:http, WebCrypto for node:crypto.
  onResolve({ filter: /^node:/ }, ({ path, kind }) =>
    kind === 'import-statement' ? { path, namespace: 'node' } : { path, external: true },
  )
  onLoad({ filter: /.*/, namespace: 'node' }, ({ path }) => ({
    contents: `module.exports = require('${path}')`,
  }))
  // An empty source map of their own keeps packages out of ours, which Node then reads in no time.
  const map = Buffer.from('{"version":3,"sources":[""],"mappings":"AAAA"}').toString('base64')
  onLoad({ filter: /[\\/]node_modules[\\/].*\.[cm]?js$/ }, ({ path }) => ({
    contents: `${readFileSync(path, 'utf8')}\n//# sourceMappingURL=data:application/json;base64,${map}`,
  }))
}

/** The license texts of the bundled packages, which most licenses want in every copy. */
function licenses(inputs) {
  const folders = inputs.flatMap((path) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? [])
  return [...new Set(folders)]
    .sort()
    .map((folder) => {
      const { name, version, license } = JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8'))
      const file = readdirSync(join(root, folder)).find((each) => /^licen[cs]e/i.test(each))
      const text = file === undefined ? '' : readFileSync(join(root, folder, file), 'utf8')
      return `${name} ${version} (${license})\n\n${text.trim()}\n`
    })
    .join(`\n${'-'.repeat(80)}\n\n`)
}

/** The commit: as the builder of an image names it, or as git knows it. */
function findRevision() {
  if (process.env.REVISION) return process.env.REVISION
  const { status, stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: root, encoding: 'utf8' })
  return status === 0 ? stdout.trim() : 'unknown'
}

/** Of all that dist/ is made from; without package-lock.json it would not tell which packages are in the bundle. */
function hashOfSources() {
  const hash = createHash('sha256')
  const scripts = ['build', 'undici'].map((name) => join('scripts', `${name}.mjs`))
  const folders = ['src', 'operator', 'sandbox', 'demo', 'client'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true }).map((path) => join(folder, path)),
  )
  for (const path of ['package-lock.json', 'tsconfig.json', ...scripts, ...folders].sort()) {
    const file = join(root, path)
    if (statSync(file).isFile()) hash.update(`${path}\0`).update(readFileSync(file)).update('\0')
  }
  return hash.digest('hex')
}

function missing(then) {
  return `dist/ cannot be built without the development packages: run "npm ci --include=dev", then ${then}.`
}

/** In the place of each program: the sentence that says how to build it. */
function explainMissing() {
  for (const name of Object.keys(programs)) {
    const file = join(dist, `${name}.js`)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, `console.error(${JSON.stringify(missing('start again'))})\nprocess.exit(1)\n`)
  }
}
