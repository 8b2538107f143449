// Each test process preloads this file (.taprc), so it runs its test file as JavaScript.
const Module = require('node:module')
const { join, relative, resolve } = require('node:path')
const { pathToFileURL } = require('node:url')
const { compiledFolder, ROOT } = require('./compile.cjs')

// In the place of Node's own function, which would also start the loader that tap names for its coverage.
Module.runMain = (main = process.argv[1]) => {
  runCompiled(resolve(main)).catch((error) => {
    console.error(error.errors ? error.message : error)
    process.exit(1)
  })
}

async function runCompiled(main) {
  const folder = await compiledFolder()
  await import(pathToFileURL(join(folder, relative(ROOT, main).replace(/\.ts$/, '.js'))).href)
}
