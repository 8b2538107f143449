// Runs before the tests, after install.mjs: prepares the runner and compiles the tests, because the first test
// processes would each do so at the same time.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { compiledFolder } from './compile.cjs'

// Importing tap starts its clock, which ends this process when it has taken 30 seconds, as on a slow machine.
process.env.TAP_TIMEOUT = '0'
const { Test } = await import('tap')

// The runner reads its plugins before it rebuilds itself without them. So its first run in a clone
// would load the TypeScript plugin in each test file, which costs seconds of CPU time every time.
const built = new Test({ name: 'plugins' }).pluginSignature.split('\n')
const unwanted = [...readFileSync('.taprc', 'utf8').matchAll(/"!(@tapjs\/\w+)"/g)].map(([, name]) => name)
if (unwanted.some((name) => built.includes(name))) {
  const { status } = spawnSync('tap', ['build'], { stdio: 'inherit' })
  if (status !== 0) process.exit(status ?? 1)
}

await compiledFolder()
