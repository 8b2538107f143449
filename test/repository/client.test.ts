import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { createSecureContext } from 'node:tls'
import { gzipSync } from 'node:zlib'
import { transformSync } from 'esbuild'
import t from 'tap'
import ts from 'typescript'
import { SIGN_IN_MS } from '../../src/login/login-cookies.ts'
import { END_REASONS } from '../../src/vault/session.ts'
import { ANGULAR_SWITCHES } from '../helpers/angular.ts'
import { codeBlock, codeBlocks } from '../helpers/documentation.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { filesBelow, ROOT, read } from './files.ts'

const CLIENT = read('client/bff-client.ts')

t.test('the client is one file without imports, of at most 2.5 KB compressed', async (t) => {
  t.notMatch(CLIENT, /^import /m)
  const { code } = transformSync(CLIENT, { loader: 'ts', format: 'esm', minify: true })
  const bytes = gzipSync(code, { level: 9 }).length
  t.ok(bytes <= 2560, `${bytes} bytes`)
})

t.test('the client names each reason of an end that the server has', async (t) => {
  const [type = ''] = /type EndReason =.*/.exec(CLIENT) ?? []
  const members = [...type.matchAll(/'(\w+)'/g)].map(([, member]) => member)
  t.strictSame(members.sort(), [...END_REASONS].sort())
})

t.test('the client takes a sign-in for failed as long as the server remembers it', async (t) => {
  const [, ms = ''] = /^const SIGN_IN_MS = ([\d_]+)$/m.exec(CLIENT) ?? []
  t.equal(Number(ms.replaceAll('_', '')), SIGN_IN_MS)
})

t.test('the package of the client has this version, and its three modules with types', async (t) => {
  const { version, exports } = JSON.parse(read('dist/client/package.json'))
  t.equal(version, JSON.parse(read('package.json')).version)
  const names = ['bff-client', 'react', 'vue'].flatMap((name) => [`${name}.d.ts`, `${name}.js`])
  const files = readdirSync(join(ROOT, 'dist/client')).sort()
  t.strictSame(files, ['LICENSE', 'README.md', 'package.json', ...names].sort())
  for (const name of names)
    t.match(JSON.stringify(exports), `./${name}`, 'test/verify/package.test.ts uses it')
})

t.test(
  'the client and the printed code compile under the strict settings of Vite and Angular projects',
  async (t) => {
    const folder = makeFolder('client')
    symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
    mkdirSync(join(folder, 'src'))
    const sources = [
      ...['bff-client', 'react', 'vue'].map((name) => `client/${name}.ts`),
      ...filesBelow('examples/recipes', '.ts'),
    ]
    const files = sources.map((path) => `src/${basename(path)}`)
    for (const [at, path] of sources.entries()) writeFileSync(join(folder, files[at]!), read(path))
    const pages = ['README.md', 'docs/spa.md', 'docs/getting-started.md', 'docs/operations.md']
    const blocks = pages.flatMap(codeBlocks)
    for (const [at, { language, code }] of blocks.entries()) {
      // What is generated from the document: test/http/openapi-client.test.ts compiles it.
      if (!/^tsx?$/.test(language) || code.includes("'./api.js'")) continue
      files.push(`src/block-${at}.${language}`)
      writeFileSync(join(folder, files.at(-1)!), code)
    }
    t.ok(files.length >= 11, `${files.length} files`)

    // Each template only adds switches that refuse more, so one compilation has those of all.
    const template = 'node_modules/create-vite/template-'
    const settings = [
      compilerOptions('examples/vite/tsconfig.json'),
      compilerOptions(`${template}vanilla-ts/tsconfig.json`),
      compilerOptions(`${template}react-ts/tsconfig.app.json`),
    ]
    const all = {
      ...Object.assign({}, ...settings, ANGULAR_SWITCHES),
      jsx: 'react-jsx',
      types: ['vite/client', 'node'],
      // `vue` exports the types of this package, and little else.
      paths: { vue: [join(ROOT, 'node_modules/@vue/runtime-dom')] },
    }
    const { options, errors } = ts.convertCompilerOptionsFromJson(all, folder)
    const paths = files.map((name) => join(folder, name))
    const found = [...errors, ...ts.getPreEmitDiagnostics(ts.createProgram(paths, options))]
    const texts = found.map(({ file, messageText }) => [
      file?.fileName,
      ts.flattenDiagnosticMessageText(messageText, ' '),
    ])
    t.strictSame(texts, [])
  },
)

function compilerOptions(file: string): Record<string, unknown> {
  return ts.parseConfigFileTextToJson(file, read(file)).config.compilerOptions
}

t.test('examples/vite has the versions of the root, and the proxy that docs/spa.md prints', async (t) => {
  const own = JSON.parse(read('examples/vite/package.json')).devDependencies
  const root = JSON.parse(read('package.json')).devDependencies
  for (const [name, version] of Object.entries(own)) t.equal(root[name], version, name)
  const proxyOf = (text: string) => /'(\^\/.*?)': \{\s*target/.exec(text)?.[1]
  const expected = proxyOf(read('examples/vite/vite.config.ts'))
  t.type(expected, 'string')
  t.equal(proxyOf(codeBlock('docs/spa.md', 'Develop with Vite', 'ts')), expected)
})

t.test('the certificate of docs/spa.md fits its key, and each printed JSON text is one', async (t) => {
  const folder = makeFolder('certificate')
  const made = spawnSync('sh', ['-c', codeBlock('docs/spa.md', 'Develop with https', 'sh')], {
    cwd: folder,
  })
  t.equal(made.status, 0, made.stderr.toString())
  const file = (name: string) => readFileSync(join(folder, name))
  t.doesNotThrow(() => createSecureContext({ key: file('localhost-key.pem'), cert: file('localhost.pem') }))
  for (const { language, code } of codeBlocks('docs/spa.md')) {
    if (language === 'json') t.doesNotThrow(() => JSON.parse(code), code)
  }
})
