import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createSecureContext } from 'node:tls'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { transformSync } from 'esbuild'
import t from 'tap'
import ts from 'typescript'
import { PROBLEM_CODES } from '../../src/errors.ts'
import { END_REASONS } from '../../src/session/session.ts'
import { codeBlock, codeBlocks } from '../helpers/documentation.ts'
import { makeFolder } from '../helpers/watchdog.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const CLIENT = join(ROOT, 'client/bff-client.ts')
const EXAMPLE = join(ROOT, 'examples/vite')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

/** The functions that the printed code leaves to the page. */
const PAGE = `
declare function showPage(session: object): void
declare function showNotice(text: string): void
declare function showSignInButton(error: string | null): void
declare function showFlux(text: string): void
`

/** Blocks that other blocks import, by their headings. */
const IMPORTED: Readonly<Record<string, string>> = { 'Handle errors': 'explain' }

t.test('the client is one file without imports, of at most 2 KB compressed', async (t) => {
  const text = readFileSync(CLIENT, 'utf8')
  t.notMatch(text, /^import /m)
  const { code } = transformSync(text, { loader: 'ts', format: 'esm', minify: true })
  const bytes = gzipSync(code, { level: 9 }).length
  t.ok(bytes <= 2048, `${bytes} bytes`)
})

t.test('the client names each error code and each reason of an end that the server has', async (t) => {
  const text = readFileSync(CLIENT, 'utf8')
  const members = (type: string) =>
    [...(new RegExp(`type ${type} =(.*?)\n\n`, 's').exec(text)?.[1] ?? '').matchAll(/'(\w+)'/g)]
      .map(([, member]) => member)
      .sort()
  t.strictSame(members('ErrorCode'), [...PROBLEM_CODES, 'sign_in_loop', 'unreachable'].sort())
  t.strictSame(members('EndReason'), [...END_REASONS].sort())
})

t.test('the client and the printed code compile under the strict settings of a Vite template', async (t) => {
  const folder = makeFolder('strict')
  mkdirSync(join(folder, 'src'))
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
  for (const name of ['bff-client', 'react', 'vue'])
    copyFileSync(join(ROOT, `client/${name}.ts`), join(folder, `src/${name}.ts`))
  writeFileSync(join(folder, 'src/page.d.ts'), PAGE)
  const files = ['bff-client.ts', 'react.ts', 'vue.ts', 'page.d.ts'].map((name) => `src/${name}`)
  const blocks = ['README.md', 'docs/spa.md', 'docs/getting-started.md', 'docs/operations.md'].flatMap(
    codeBlocks,
  )
  for (const [at, { heading, language, code }] of blocks.entries()) {
    if (language !== 'ts') continue
    const name = IMPORTED[heading] ?? `block-${at}`
    files.push(`src/${name}.ts`)
    writeFileSync(join(folder, files.at(-1)!), code)
  }
  t.ok(files.length >= 12, `${files.length} files`)

  const settings = compilerOptions('examples/vite/tsconfig.json')
  const printed = {
    ...settings,
    jsx: 'react-jsx',
    types: ['vite/client', 'node'],
    // `vue` exports the types of this package, and little else.
    paths: { vue: [join(ROOT, 'node_modules/@vue/runtime-dom')] },
  }
  t.strictSame(compile(folder, files, printed), [])
  for (const template of ['vanilla-ts/tsconfig.json', 'react-ts/tsconfig.app.json']) {
    const options = compilerOptions(`node_modules/create-vite/template-${template}`)
    const react = template.startsWith('react') ? ['src/react.ts'] : []
    t.strictSame(compile(folder, ['src/bff-client.ts', 'src/page.d.ts', ...react], options), [], template)
  }
})

t.test(
  'the package of the client has this version, and its three modules can be imported with types',
  async (t) => {
    const folder = makeFolder('package')
    const packed = spawnSync('npm', ['pack', join(ROOT, 'dist/client'), '--json'], {
      cwd: folder,
      encoding: 'utf8',
    })
    t.equal(packed.status, 0, packed.stderr)
    const [{ version, filename, files }] = JSON.parse(packed.stdout)
    t.equal(version, JSON.parse(read('package.json')).version)
    const names = ['bff-client', 'react', 'vue'].flatMap((name) => [`${name}.d.ts`, `${name}.js`])
    t.strictSame(
      files.map(({ path }: { path: string }) => path).sort(),
      ['LICENSE', 'README.md', 'package.json', ...names].sort(),
    )
    const place = join(folder, 'node_modules/token-handler-bff-client')
    mkdirSync(place, { recursive: true })
    const unpacked = spawnSync('tar', ['-xzf', join(folder, filename), '--strip-components=1', '-C', place])
    t.equal(unpacked.status, 0)
    const page = `
    import { type BffError, session } from 'token-handler-bff-client'
    import { useSession as ofReact } from 'token-handler-bff-client/react'
    import { useSession as ofVue } from 'token-handler-bff-client/vue'
    const known: boolean | undefined = ofReact((error: unknown) => void (error as BffError).code)?.authenticated
    const kept: boolean | undefined = ofVue(() => {}).value?.authenticated
    export const all = [session, known, kept]
  `
    writeFileSync(join(folder, 'page.ts'), page)
    const settings = {
      ...{
        strict: true,
        noEmit: true,
        module: 'es2022',
        moduleResolution: 'bundler',
        lib: ['es2022', 'dom'],
      },
      typeRoots: [],
      types: [],
      paths: {
        vue: [join(ROOT, 'node_modules/@vue/runtime-dom')],
        react: [join(ROOT, 'node_modules/@types/react')],
      },
    }
    t.strictSame(compile(folder, ['page.ts'], settings), [])
  },
)

function compilerOptions(file: string): object {
  return ts.parseConfigFileTextToJson(file, read(file)).config.compilerOptions
}

/** What the compiler finds in these files of the folder. */
function compile(folder: string, files: string[], settings: object): string[] {
  const { options, errors } = ts.convertCompilerOptionsFromJson(settings, folder)
  const program = ts.createProgram(
    files.map((name) => join(folder, name)),
    options,
  )
  return [...errors, ...ts.getPreEmitDiagnostics(program)].map(({ file, start, messageText }) => {
    const line =
      file === undefined || start === undefined ? 0 : file.getLineAndCharacterOfPosition(start).line + 1
    return `${file?.fileName}:${line} ${ts.flattenDiagnosticMessageText(messageText, ' ')}`
  })
}

t.test('examples/vite has the versions of the root, and the proxy that docs/spa.md prints', async (t) => {
  const own = JSON.parse(readFileSync(join(EXAMPLE, 'package.json'), 'utf8')).devDependencies
  const root = JSON.parse(read('package.json')).devDependencies
  for (const [name, version] of Object.entries(own)) t.equal(root[name], version, name)
  const proxyOf = (text: string) => /'(\^\/.*?)': \{\s*target/.exec(text)?.[1]
  const expected = proxyOf(readFileSync(join(EXAMPLE, 'vite.config.ts'), 'utf8'))
  t.type(expected, 'string')
  t.equal(proxyOf(codeBlock('docs/spa.md', 'Develop with Vite', 'ts')), expected)
})

t.test(
  'the certificate that docs/spa.md makes fits its key, and each printed JSON text is one',
  async (t) => {
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
  },
)
