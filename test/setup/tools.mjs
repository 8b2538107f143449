// The programs that the tests run besides Node, and where they are found.
import { accessSync, constants } from 'node:fs'
import { delimiter, isAbsolute, join } from 'node:path'

/**
 * For each tool the names, or whole paths, under which platforms install it, of which the first found is used; its package
 * on Debian; and the argument that prints its version, `--version` where there is none.
 */
export const TOOLS = {
  'redis-server': { names: ['redis-server', 'valkey-server'], debian: 'redis-server' },
  'redis-cli': { names: ['redis-cli', 'valkey-cli'], debian: 'redis-tools' },
  openssl: { names: ['openssl'], debian: 'openssl', version: 'version' },
  promtool: { names: ['promtool'], debian: 'prometheus' },
  nginx: { names: ['nginx'], debian: 'nginx', version: '-v' },
  haproxy: { names: ['haproxy'], debian: 'haproxy', version: '-v' },
  caddy: { names: ['caddy'], debian: 'caddy', version: 'version' },
  apache: { names: ['apache2', 'httpd'], debian: 'apache2', version: '-v' },
  varnish: { names: ['varnishd'], debian: 'varnish', version: '-V' },
  hitch: { names: ['hitch'], debian: 'hitch' },
  lighttpd: { names: ['lighttpd'], debian: 'lighttpd lighttpd-mod-openssl', version: '-v' },
  h2o: { names: ['h2o'], debian: 'h2o' },
  nghttpx: { names: ['nghttpx'], debian: 'nghttp2-proxy' },
  squid: { names: ['squid'], debian: 'squid', version: '-v' },
  tinyproxy: { names: ['tinyproxy'], debian: 'tinyproxy-bin', version: '-v' },
  firefox: {
    names: ['firefox-esr', 'firefox', '/Applications/Firefox.app/Contents/MacOS/firefox'],
    debian: 'firefox-esr',
  },
  chromium: {
    names: [
      // Chromium without a window, and without the work for one.
      'chromium-headless-shell',
      ...['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'],
      '/Applications/Chromium.app/Contents/MacOS/Chromium',
      '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
    ],
    debian: 'chromium-headless-shell',
  },
  // Device Bound Session Credentials are not in the headless shell.
  'chromium-whole': {
    names: [
      ...['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'],
      '/Applications/Chromium.app/Contents/MacOS/Chromium',
      '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
    ],
    debian: 'chromium',
  },
}

/** Without one of these `npm test` does not begin. */
export const REQUIRED = ['redis-server', 'redis-cli', 'openssl', 'chromium', 'chromium-whole']

/** What it runs besides: without one of them its tests are skipped, and the run says so at its end. */
export const OPTIONAL = ['nginx', 'haproxy']

/** The same for `npm run verify`. */
export const VERIFY = [
  ...OPTIONAL,
  'promtool',
  'caddy',
  'apache',
  'varnish',
  'hitch',
  'lighttpd',
  'h2o',
  'nghttpx',
  'squid',
  'tinyproxy',
  'firefox',
]

/** Environment variables that name a tool at another place, or another version of it. */
const PATH_VARIABLES = {
  chromium: 'CHROMIUM_PATH',
  'chromium-whole': 'CHROMIUM_WHOLE_PATH',
  'redis-server': 'REDIS_SERVER_PATH',
}

/** The path that the environment gives for a tool; undefined where it gives none. */
export function givenPath(name) {
  return process.env[PATH_VARIABLES[name]] || undefined
}

/** The full path of a tool, or null. */
export function findTool(name) {
  const given = givenPath(name)
  if (given !== undefined) return isExecutable(given) ? given : null
  const path = (process.env.PATH ?? '').split(delimiter)
  const folders = [...path, '/usr/sbin', '/usr/local/bin', '/opt/homebrew/bin']
  const candidates = TOOLS[name].names.flatMap((candidate) =>
    isAbsolute(candidate) ? [candidate] : folders.map((folder) => join(folder, candidate)),
  )
  return candidates.find(isExecutable) ?? null
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
