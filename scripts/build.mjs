// Makes dist/ from src/: the server and the sandbox (tsconfig.build.json), the demo page's script
// (tsconfig.demo.json), and the files that the compiler does not copy. With --if-possible it is
// the `prepare` step: an install without development dependencies has no compiler and keeps what it has.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const COPIED = new Set(['.lua', '.html', '.css', '.svg'])
const root = dirname(dirname(fileURLToPath(import.meta.url)))

const compiler = findCompiler()
if (compiler === null) {
  if (process.argv.includes('--if-possible')) {
    console.log('No TypeScript compiler is installed here: dist/ is left as it is.')
    process.exit(0)
  }
  console.error('The TypeScript compiler is missing. Run: npm ci')
  process.exit(1)
}

rmSync(join(root, 'dist'), { recursive: true, force: true })
compile('tsconfig.build.json')
compile('tsconfig.demo.json')
for (const entry of readdirSync(join(root, 'src'), { recursive: true })) {
  if (!COPIED.has(extname(entry))) continue
  const target = join(root, 'dist', entry)
  mkdirSync(dirname(target), { recursive: true })
  cpSync(join(root, 'src', entry), target)
}

writeFileSync(join(root, 'dist', 'revision.txt'), `${findRevision()}\n`)

/** The commit: as the builder of an image names it, or as git knows it. */
function findRevision() {
  if (process.env.REVISION) return process.env.REVISION
  const { status, stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: root, encoding: 'utf8' })
  return status === 0 ? stdout.trim() : 'unknown'
}

function findCompiler() {
  try {
    return createRequire(join(root, 'package.json')).resolve('typescript/bin/tsc')
  } catch {
    return null
  }
}

function compile(project) {
  const args = [compiler, '--project', join(root, project)]
  const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit' })
  if (status !== 0) process.exit(1)
}
