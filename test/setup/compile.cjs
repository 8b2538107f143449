// Compiles the tests and all that they import once per state of their files. Loaders that compile while Node imports cost each
// test process a second of CPU time.
const { createHash } = require('node:crypto')
const { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, statSync } = require('node:fs')
const { readFile } = require('node:fs/promises')
const { join, resolve } = require('node:path')
const { pathToFileURL } = require('node:url')

const ROOT = resolve(__dirname, '../..')
const CACHE = join(ROOT, '.tap', 'compiled')
const KEPT_MS = 3_600_000

module.exports = { compiledFolder, ROOT }

/** The folder with the JavaScript of the files as they are. */
async function compiledFolder() {
  const files = listSources()
  const folder = join(CACHE, hashOf(files))
  if (!exists(folder)) await compile(files, folder)
  return folder
}

function listSources() {
  return ['client', 'demo', 'operator', 'sandbox', 'src', 'test', 'tools'].flatMap((name) =>
    readdirSync(join(ROOT, name), { recursive: true })
      // A bundle holds the JavaScript too that a test imports.
      .filter((path) => /\.[cm]?[jt]s$/.test(path))
      .map((path) => join(ROOT, name, path)),
  )
}

function hashOf(files) {
  const hash = createHash('sha256').update(`esbuild ${require('esbuild/package.json').version}\n`)
  for (const file of files) {
    const { mtimeMs, size } = statSync(file)
    hash.update(`${file} ${mtimeMs} ${size}\n`)
  }
  return hash.digest('hex').slice(0, 16)
}

async function compile(files, folder) {
  removeOld()
  const target = mkdtempSync(`${folder}-`)
  await require('esbuild').build({
    absWorkingDir: ROOT,
    entryPoints: files.filter((file) => /(\.test|\/together(-[\w-]+)?|\/all-other-\w+)\.ts$/.test(file)),
    outdir: target,
    outbase: ROOT,
    bundle: true,
    splitting: true,
    packages: 'external',
    format: 'esm',
    platform: 'node',
    target: 'es2023',
    sourcemap: 'linked',
    sourcesContent: false,
    logLevel: 'silent',
    plugins: [ownUrls],
  })
  try {
    renameSync(target, folder)
  } catch {
    // Another process that began at the same time was faster. What is left goes with the old ones.
  }
}

// A compiled module finds the files of the repository from where its source is.
const ownUrls = {
  name: 'own-urls',
  setup(build) {
    build.onLoad({ filter: /\.ts$/ }, async ({ path }) => {
      const text = await readFile(path, 'utf8')
      const url = JSON.stringify(pathToFileURL(path).href)
      return { contents: text.replaceAll('import.meta.url', url), loader: 'ts' }
    })
  },
}

function exists(path) {
  return statSync(path, { throwIfNoEntry: false }) !== undefined
}

function removeOld() {
  mkdirSync(CACHE, { recursive: true })
  for (const name of readdirSync(CACHE)) {
    const path = join(CACHE, name)
    try {
      if (Date.now() - statSync(path).mtimeMs > KEPT_MS) rmSync(path, { recursive: true, force: true })
    } catch {
      // Another process removes it too.
    }
  }
}
