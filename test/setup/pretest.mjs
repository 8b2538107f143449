// Runs before `npm test`: only tests of files in deploy/ are skipped for want of a program. What is missing is
// installed where that needs no question (root on Debian or Ubuntu); elsewhere the command to type is printed.
// It also compiles the tests, because the first test processes would each do so at the same time.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { Test } from 'tap'
import { compiledFolder } from './compile.cjs'
import { findTool, givenPath, TOOLS } from './tools.mjs'

const DEBIAN_PACKAGES = {
  'redis-server': 'redis-server',
  'redis-cli': 'redis-tools',
  openssl: 'openssl',
  promtool: 'prometheus',
  nginx: 'nginx',
  haproxy: 'haproxy',
  caddy: 'caddy',
  chromium: 'chromium-headless-shell',
}

// Only tests of files in deploy/ need these: without one its test is skipped and says so. Nobody has to run web
// servers on a workstation for the tests of the server itself.
const OPTIONAL = ['promtool', 'nginx', 'haproxy', 'caddy']
const OPTIONAL_INSTALL_MS = 120_000

const VERSION_ARGUMENTS = { openssl: 'version', nginx: '-v', haproxy: '-v', caddy: 'version' }

let absent = missingTools()
// A program whose path is given is the user's to provide.
const missing = absent.filter((tool) => givenPath(tool) === undefined)
if (missing.length > 0) {
  const platform = detectPlatform()
  if (isDebian(platform) && process.getuid?.() === 0) {
    console.log(`Installing what the tests need and this machine lacks: ${missing.join(', ')}`)
    apt(['update', '-qq'])
    const needed = missing.filter((tool) => !OPTIONAL.includes(tool))
    if (needed.length > 0) install(needed, platform)
    // Apart: a package that an archive lacks must not hold up the others.
    for (const tool of missing.filter((each) => OPTIONAL.includes(each))) {
      install([tool], platform, OPTIONAL_INSTALL_MS)
    }
    absent = missingTools()
  }
}

const skipped = absent.filter((tool) => OPTIONAL.includes(tool))
if (skipped.length > 0) {
  console.log(
    `Not installed, so the tests of files in deploy/ that run them are skipped: ${skipped.join(', ')}`,
  )
}
const stillMissing = absent.filter((tool) => !OPTIONAL.includes(tool))
if (stillMissing.length > 0) {
  console.error(`The tests need programs that are not installed here: ${stillMissing.join(', ')}.`)
  for (const tool of stillMissing) {
    const path = givenPath(tool)
    if (path !== undefined) console.error(`The path that is given for ${tool} names no program: ${path}`)
  }
  console.error(`Install them and run npm test again:\n\n  ${installCommand(stillMissing)}\n`)
  console.error(
    'CHROMIUM_PATH names a Chromium or Chrome at another place, REDIS_SERVER_PATH a Redis or Valkey.',
  )
  process.exit(1)
}

// The runner reads its plugins before it rebuilds itself without them. So its first run in a clone
// would load the TypeScript plugin in each test file, which costs seconds of CPU time every time.
const built = new Test({ name: 'plugins' }).pluginSignature.split('\n')
const unwanted = [...readFileSync('.taprc', 'utf8').matchAll(/"!(@tapjs\/\w+)"/g)].map(([, name]) => name)
if (unwanted.some((name) => built.includes(name))) {
  const { status } = spawnSync('tap', ['build'], { stdio: 'inherit' })
  if (status !== 0) process.exit(status ?? 1)
}

await compiledFolder()

function missingTools() {
  return Object.keys(TOOLS).filter((tool) => !runs(tool))
}

// Being there is not enough: Ubuntu's chromium-browser may be a stub that only names its snap.
function runs(tool) {
  const path = findTool(tool)
  if (path === null) return false
  const { status } = spawnSync(path, [VERSION_ARGUMENTS[tool] ?? '--version'], {
    stdio: 'ignore',
    timeout: 30_000,
  })
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

function isDebian(platform) {
  return platform.includes('debian') || platform.includes('ubuntu')
}

function packages(tools, platform) {
  // Ubuntu has the browser under the older name, as a snap.
  const names = platform.includes('ubuntu')
    ? { ...DEBIAN_PACKAGES, chromium: 'chromium-browser' }
    : DEBIAN_PACKAGES
  return tools.map((tool) => names[tool])
}

function installCommand(tools) {
  const platform = detectPlatform()
  const sudo = process.getuid?.() === 0 ? '' : 'sudo '
  if (isDebian(platform)) {
    const names = packages(tools, platform).join(' ')
    return `${sudo}apt-get update && ${sudo}apt-get install -y --no-install-recommends ${names}`
  }
  if (platform.includes('fedora') || platform.includes('rhel')) {
    return `${sudo}dnf install -y redis chromium openssl`
  }
  if (platform.includes('arch')) return `${sudo}pacman -S --needed valkey chromium openssl`
  if (platform.includes('alpine')) return `${sudo}apk add redis chromium openssl`
  if (platform.includes('darwin')) {
    return 'brew install redis openssl && brew install --cask google-chrome'
  }
  return `your package manager, for: ${tools.join(', ')}`
}

function install(tools, platform, timeout) {
  apt(['install', '-y', '-qq', '--no-install-recommends', ...packages(tools, platform)], timeout)
}

/** Without a timeout apt-get takes the time that it needs. */
function apt(args, timeout) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  spawnSync('apt-get', args, { env, stdio: ['ignore', 'inherit', 'inherit'], timeout })
}
