// The programs that the tests run besides Node, and where they are found.
import { accessSync, constants } from 'node:fs'
import { delimiter, isAbsolute, join } from 'node:path'

/** For each tool the names, or whole paths, under which platforms install it; the first found is used. */
const TOOLS = {
  'redis-server': ['redis-server', 'valkey-server'],
  'redis-cli': ['redis-cli', 'valkey-cli'],
  openssl: ['openssl'],
  promtool: ['promtool'],
  nginx: ['nginx'],
  haproxy: ['haproxy'],
  caddy: ['caddy'],
  firefox: ['firefox-esr', 'firefox', '/Applications/Firefox.app/Contents/MacOS/firefox'],
  chromium: [
    // Chromium without a window, and without the work for one.
    'chromium-headless-shell',
    'chromium',
    'chromium-browser',
    'google-chrome',
    'google-chrome-stable',
    '/Applications/Chromium.app/Contents/MacOS/Chromium',
    '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
  ],
}

/** What `npm test` runs. */
export const REQUIRED = ['redis-server', 'redis-cli', 'openssl', 'chromium']

/** What `npm run verify` runs besides: without one of them its tests are skipped, and the run says so at its end. */
export const VERIFY = ['promtool', 'nginx', 'haproxy', 'caddy', 'firefox']

/** Environment variables that name a tool at another place, or another version of it. */
const PATH_VARIABLES = { chromium: 'CHROMIUM_PATH', 'redis-server': 'REDIS_SERVER_PATH' }

/** The path that the environment gives for a tool; undefined where it gives none. */
export function givenPath(name) {
  return process.env[PATH_VARIABLES[name]] || undefined
}

/** The full path of a tool, or null. */
export function findTool(name) {
  const given = givenPath(name)
  if (given !== undefined) return isExecutable(given) ? given : null
  const folders = [
    ...(process.env.PATH ?? '').split(delimiter),
    '/usr/sbin',
    '/usr/local/bin',
    '/opt/homebrew/bin',
  ]
  for (const candidate of TOOLS[name]) {
    const paths = isAbsolute(candidate) ? [candidate] : folders.map((folder) => join(folder, candidate))
    const found = paths.find(isExecutable)
    if (found !== undefined) return found
  }
  return null
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
