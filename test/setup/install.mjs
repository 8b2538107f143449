// Runs before the tests: looks for the programs that they need besides Node. Root on Debian or Ubuntu installs what is
// missing, since that needs no question; elsewhere the command to type is printed. With `--verify` it also looks for what
// `npm run verify` runs, with `--unit` only for what `npm run test:unit` needs. It imports nothing that keeps time: an
// installation may take minutes.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { findTool, givenPath, OPTIONAL, REQUIRED, TOOLS, VERIFY } from './tools.mjs'

const platform = detectPlatform()
const isDebian = platform.includes('debian') || platform.includes('ubuntu')
const isUnit = process.argv.includes('--unit')
const needed = isUnit ? REQUIRED.filter((tool) => !isBrowser(tool)) : REQUIRED
const besides = process.argv.includes('--verify') ? VERIFY : isUnit ? [] : OPTIONAL
const wanted = [...needed, ...besides]

// A program whose path is given is the user's to provide.
const missing = wanted.filter((tool) => !runs(tool) && givenPath(tool) === undefined)
if (missing.length > 0 && isDebian && process.getuid?.() === 0) {
  console.log(`Installing what the tests need and this machine lacks: ${missing.join(', ')}`)
  apt(['update', '-qq'])
  // One at a time: an archive that lacks one package must not hold up the others.
  for (const tool of missing)
    apt(['install', '-y', '-qq', '--no-install-recommends', ...packageOf(tool).split(' ')])
}

const stillMissing = needed.filter((tool) => !runs(tool))
if (stillMissing.length > 0) {
  console.error(`The tests need programs that are not installed here: ${stillMissing.join(', ')}.`)
  for (const tool of stillMissing) {
    const path = givenPath(tool)
    if (path !== undefined) console.error(`The path that is given for ${tool} names no program: ${path}`)
  }
  console.error(`Install them and run the command again:\n\n  ${installCommand(stillMissing)}\n`)
  console.error(
    'CHROMIUM_PATH names a Chromium or Chrome at another place, CHROMIUM_WHOLE_PATH one that is no headless shell, REDIS_SERVER_PATH a Redis or Valkey.',
  )
  process.exit(1)
}

// Being there is not enough: Ubuntu's chromium-browser may be a stub that only names its snap.
function runs(tool) {
  const path = findTool(tool)
  if (path === null) return false
  // No timeout: a browser's first start on a slow machine takes its time.
  const { status } = spawnSync(path, [TOOLS[tool].version ?? '--version'], { stdio: 'ignore' })
  return status === 0
}

/** The ids of the distribution, most special first ('ubuntu', 'debian'), or of the operating system. */
function detectPlatform() {
  if (process.platform !== 'linux') return [process.platform]
  try {
    const release = readFileSync('/etc/os-release', 'utf8')
    const read = (key) => release.match(new RegExp(`^${key}="?([^"\n]*)"?$`, 'm'))?.[1] ?? ''
    return `${read('ID')} ${read('ID_LIKE')}`.split(' ').filter(Boolean)
  } catch {
    return ['linux']
  }
}

function isBrowser(tool) {
  return tool.startsWith('chromium')
}

function packageOf(tool) {
  // Ubuntu has the browser under the older name, as a snap.
  return isBrowser(tool) && platform.includes('ubuntu') ? 'chromium-browser' : TOOLS[tool].debian
}

function installCommand(tools) {
  const sudo = process.getuid?.() === 0 ? '' : 'sudo '
  if (isDebian) {
    const names = [...new Set(tools.map(packageOf))].join(' ')
    return `${sudo}apt-get update && ${sudo}apt-get install -y --no-install-recommends ${names}`
  }
  if (platform.includes('fedora') || platform.includes('rhel'))
    return `${sudo}dnf install -y redis chromium openssl`
  if (platform.includes('arch')) return `${sudo}pacman -S --needed valkey chromium openssl`
  if (platform.includes('alpine')) return `${sudo}apk add redis chromium openssl`
  if (platform.includes('darwin')) return 'brew install redis openssl && brew install --cask google-chrome'
  return `your package manager, for: ${tools.join(', ')}`
}

/** apt-get takes the time that it needs. What it could not do is said with the command that failed. */
function apt(args) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const { status } = spawnSync('apt-get', args, { env, stdio: ['ignore', 'ignore', 'inherit'] })
  if (status !== 0) console.error(`This command failed: apt-get ${args.join(' ')}`)
}
