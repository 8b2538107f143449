import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { shared } from '../helpers/shared.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { ROOT } from '../repository/files.ts'

/** Each installs in a folder of its own: the server depends on none. */
const GENERATORS = [
  {
    packages: ['oazapfts@7.5.0', '@oazapfts/runtime@1.2.0'],
    command: ['oazapfts', 'api.json', 'out.ts'],
    entry: 'out.ts',
  },
  {
    packages: ['swagger-typescript-api@13.13.0'],
    command: ['swagger-typescript-api', 'generate', '-p', 'api.json', '-o', 'out', '-n', 'api.ts'],
    entry: 'out/api.ts',
  },
  {
    packages: ['@hey-api/openapi-ts@0.99.0', 'typescript@5.9.3'],
    command: ['openapi-ts', '-i', 'api.json', '-o', 'out', '-c', '@hey-api/client-fetch'],
    entry: 'out/index.ts',
  },
  {
    packages: ['orval@8.38.0'],
    command: ['orval', '--input', 'api.json', '--output', 'out/api.ts', '--client', 'fetch'],
    entry: 'out/api.ts',
  },
] as const

const OPERATIONS = JSON.stringify({
  operations: {
    ListThings: {
      method: 'GET',
      path: '/{wac}/things',
      formats: ['JSON', 'CSV'],
      query: { take: 'integer' },
    },
    ExportThings: { method: 'GET', path: '/{wac}/export', formats: ['CSV'] },
    NameThing: {
      ...{ method: 'PUT', path: '/{wac}/things/{thingId}', parameters: { thingId: 'id' } },
      body: { schema: { type: 'object', required: ['name'], properties: { name: { type: 'string' } } } },
    },
  },
})

const SETTINGS = {
  ...{ strict: true, noEmit: true, skipLibCheck: true, types: [] },
  ...{ target: 'es2022', module: 'esnext', moduleResolution: 'bundler' },
  lib: ['es2023', 'dom', 'dom.iterable'],
}

const OPERATIONS_FILE = join(makeFolder('operations'), 'operations.json')
writeFileSync(OPERATIONS_FILE, OPERATIONS)
const { bff } = await shared({ OPERATIONS_FILE })
const document = (await bff.browser().fetch('/openapi.json')).text

for (const { packages, command, entry } of GENERATORS) {
  const folder = makeFolder('generator')
  const run = (program: string, args: readonly string[]) => {
    const { status, stdout, stderr } = spawnSync(program, args, { cwd: folder, encoding: 'utf8' })
    return { status, output: `${stdout}${stderr}` }
  }
  writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}')
  const installed = run('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', ...packages])
  const skip = installed.status !== 0 && `npm does not install ${packages[0]}`
  t.test(`what ${packages[0]} generates has each operation and compiles strictly`, { skip }, async (t) => {
    writeFileSync(join(folder, 'api.json'), document)
    const [program, ...args] = command
    const generated = run(join(folder, 'node_modules/.bin', program), args)
    t.equal(generated.status, 0, generated.output)
    t.ok(existsSync(join(folder, entry)))
    writeFileSync(
      join(folder, 'tsconfig.json'),
      JSON.stringify({ compilerOptions: SETTINGS, files: [entry] }),
    )
    const compiled = run(process.execPath, [join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', '.'])
    t.equal(compiled.output, '')
    if (entry !== 'out/index.ts')
      for (const name of ['getFlux', 'updateSite', 'listThings', 'exportThings', 'nameThing'])
        t.match(readFileSync(join(folder, entry), 'utf8'), new RegExp(name, 'i'))
  })
}
