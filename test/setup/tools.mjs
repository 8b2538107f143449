// The programs that the tests run besides Node, and where they are found.
import { accessSync, constants } from 'node:fs'
import { delimiter, isAbsolute, join } from 'node:path'

/** For each tool the names, or whole paths, under which platforms install it; the first found is used. */
export const TOOLS = {
  'redis-server': ['redis-server'],
  'redis-sentinel': ['redis-sentinel'],
  'redis-cli': ['redis-cli'],
  openssl: ['openssl'],
  promtool: ['promtool'],
  chromium: [
    'chromium',
    'chromium-browser',
    'google-chrome',
    'google-chrome-stable',
    '/Applications/Chromium.app/Contents/MacOS/Chromium',
    '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
  ],
}

/** The full path of a tool, or null. `CHROMIUM_PATH` names a browser at another place. */
export function findTool(name) {
  if (name === 'chromium' && process.env.CHROMIUM_PATH) {
    return isExecutable(process.env.CHROMIUM_PATH) ? process.env.CHROMIUM_PATH : null
  }
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
