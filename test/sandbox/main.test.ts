import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { PROFILES } from '../../sandbox/profiles.ts'
import { startChild } from '../helpers/child.ts'
import { guard } from '../helpers/watchdog.ts'

const MAIN = fileURLToPath(new URL('../../dist/sandbox/main.js', import.meta.url))

t.test('the process ends with the one that forked it', async (t) => {
  // Not startChild: it waits for 'close', which Node does not emit once this side has disconnected.
  const child = fork(MAIN, { execArgv: [], env: { PORT: '0' }, stdio: 'ignore' })
  guard(child)
  t.teardown(() => child.kill('SIGKILL'))
  await once(child, 'message')
  const exit = once(child, 'exit')
  child.disconnect()
  t.strictSame(await exit, [0, null])
})

t.test('a faulty setting ends the process with a sentence that names it', async (t) => {
  const folder = t.testdir({ 'operations.json': '{"operations":{"getOne":{"method":"FETCH","path":"x"}}}' })
  for (const [env, says] of [
    [{ SANDBOX_TOKEN_SECONDS: 'soon' }, /^SANDBOX_TOKEN_SECONDS must be a whole number\n$/],
    [{ SANDBOX_PROFILE: 'keycloack' }, /^SANDBOX_PROFILE must be one of .*keycloak, .*strict, /],
    [{ SANDBOX_CALLBACK: 'nowhere' }, /^SANDBOX_CALLBACK must be a URL\n$/],
    [
      { OPERATIONS_FILE: `${folder}/operations.json` },
      /^OPERATIONS_FILE must be .*\/operations\/getOne .*\/operations\/getOne\/method /,
    ],
    // RFC 5737: an address of no machine.
    [
      { HOST: '192.0.2.1' },
      /^The sandbox cannot listen on 192\.0\.2\.1, port 0 \(EADDRNOTAVAIL\)\. HOST and PORT name them/,
    ],
  ] as const) {
    const child = startChild(t, process.execPath, [MAIN], { env: { PORT: '0', ...env } })
    t.strictSame(await child.ended, { code: 1, signal: null })
    t.match(child.stderr(), says)
  }
})

t.test('--profiles lists every measured server in a line, with its version and day', async (t) => {
  const child = startChild(t, process.execPath, [MAIN, '--profiles'], { env: {} })
  t.strictSame(await child.ended, { code: 0, signal: null })
  const lines = child.stdout().trimEnd().split('\n')
  t.strictSame(
    lines.map((line) => line.split(' ')[0]),
    Object.keys(PROFILES),
  )
  for (const line of lines) t.match(line, /^\S+ +\S.* \d+\.\d+\.\d+, \d{4}-\d{2}-\d{2}: \S/)
})

t.test('a parent learns the variables of the profile with the address', async (t) => {
  const child = fork(MAIN, {
    execArgv: [],
    env: { PORT: '0', SANDBOX_PROFILE: 'django-oauth-toolkit' },
    stdio: 'ignore',
  })
  guard(child)
  t.teardown(() => child.kill('SIGKILL'))
  const [{ url, env }] = (await once(child, 'message')) as [{ url: string; env: Record<string, string> }]
  t.match(env, { OAUTH_TOKEN_URL: `${url}/o/token/`, OAUTH_REDIRECT: 'fixed' })
})
