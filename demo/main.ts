/**
 * `npm run demo`: the sandbox platform and the server, as two processes that need nothing else, and one origin in
 * front of both, until Ctrl-C. It starts the programs in dist/ and imports neither of them. In docker-compose.yml
 * both run already, and it is only that origin.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { handleHelpAndVersion } from '../src/version.ts'
import { startFront } from './front.ts'
import { serverVariables, TOKEN_SECONDS } from './settings.ts'

handleHelpAndVersion(
  process.argv.slice(2),
  `Runs the whole product for a try: the server, a sandbox platform and a page, with nothing else installed.

  npm run demo          node dist/demo.js

  --help                prints this text
  --version             prints the version

PORT is the port of the page (3000), HOST its address (localhost), OPS_PORT the port of health and metrics (any free one).
STATIC_DIR is the folder of your own page, instead of the demo's. PUBLIC_URL is the address of a development
server on localhost that passes /auth, /flux, /site and /data on to PORT, or of a reverse proxy with https, where
browsers that can bind the session to their device. SESSION_IDLE_SECONDS, SESSION_MAX_SECONDS,
STATIC_CSP, STATIC_REFERRER_POLICY and STATIC_PERMISSIONS_POLICY are those of the server (docs/configuration.md). The account
codes are DEMO and ACME. SANDBOX_PROFILE makes the sandbox answer as a measured authorization server does, for example keycloak
(docs/sandbox.md). OPERATIONS_FILE declares operations for the server and the sandbox; where one needs it, the server
has the client flow, or no list of account codes. No other variable of the server is read.
With SERVER_URL and SANDBOX_URL it starts neither of the two, and puts one origin in front of those.
`,
)

/** Time limit for the children to end; longer than the server's SHUTDOWN_SECONDS below. */
const END_MS = 8_000
/** Variables of the caller's environment that Node needs. Server variables are not inherited. */
const INHERITED = ['PATH', 'HOME', 'TMPDIR', 'LANG', 'NODE_OPTIONS', 'NODE_EXTRA_CA_CERTS']

/** A failure whose message is for the user, without a stack. */
class StartError extends Error {}

const dist = dirname(fileURLToPath(import.meta.url))
const children: ChildProcess[] = []
let ending = false

// As for the server, an empty variable is one that is not set.
for (const [name, value] of Object.entries(process.env)) if (value === '') delete process.env[name]

// A closing terminal sends SIGHUP; npm forwards a signal that the terminal also sends directly.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => void end(0))

try {
  await run()
} catch (error) {
  console.error(error instanceof StartError ? error.message : error)
  await end(1)
}

async function run(): Promise<void> {
  const host = process.env.HOST ?? 'localhost'
  const hosts = addressesOf(host)
  const port = await choosePort(hosts, process.env.PORT ?? '3000', 'PORT')
  const { SERVER_URL, SANDBOX_URL } = process.env
  if ((SERVER_URL === undefined) !== (SANDBOX_URL === undefined)) {
    throw new StartError('SERVER_URL and SANDBOX_URL belong together: set both, or neither.')
  }
  if (SERVER_URL !== undefined && SANDBOX_URL !== undefined) {
    await startFront({ hosts, port, serverUrl: SERVER_URL, sandboxUrl: SANDBOX_URL })
    console.log(`The page of ${SERVER_URL} is on http://localhost:${port}`)
    return
  }
  for (const file of ['main.js', 'sandbox/main.js', 'demo/index.html']) {
    if (!existsSync(join(dist, file))) {
      throw new StartError(`dist/${file} is missing. Run "npm ci", or "npm run build" after a change.`)
    }
  }
  const opsPort = await choosePort(hosts, process.env.OPS_PORT ?? '0', 'OPS_PORT')
  const publicUrl = process.env.PUBLIC_URL ?? `http://localhost:${port}`
  const operations = process.env.OPERATIONS_FILE ?? join(dist, 'demo/operations.json')
  const client = { id: 'demo', secret: randomBytes(24).toString('base64url') }

  const sandbox = start('sandbox/main.js', {
    HOST: '127.0.0.1',
    PORT: '0',
    SANDBOX_CLIENT_ID: client.id,
    SANDBOX_CLIENT_SECRET: client.secret,
    SANDBOX_CALLBACK: `${publicUrl}/auth/callback`,
    SANDBOX_TOKEN_SECONDS: String(TOKEN_SECONDS),
    OPERATIONS_FILE: operations,
    ...given('SANDBOX_PROFILE'),
  })
  const { url: sandboxUrl, env: profile } = await sandboxAddress(sandbox)
  if (ending) return

  const server = start('main.js', {
    HOST: '127.0.0.1',
    PORT: '0',
    TRUST_PROXY: '127.0.0.1/32',
    OPS_PORT: String(opsPort),
    SESSION_SECRET: randomBytes(32).toString('base64url'),
    STATIC_DIR: process.env.STATIC_DIR ?? join(dist, 'demo'),
    ...serverVariables({ publicUrl, sandboxUrl, profile, client, operations }),
    ...given('SESSION_IDLE_SECONDS', 'SESSION_MAX_SECONDS'),
    ...given('STATIC_CSP', 'STATIC_REFERRER_POLICY', 'STATIC_PERMISSIONS_POLICY'),
  })
  const serverUrl = await serverAddress(server)
  await startFront({ hosts, port, serverUrl, sandboxUrl, publicHost: new URL(publicUrl).host })
  if (!ending)
    console.log(welcome({ publicUrl, sandboxUrl, metricsUrl: `http://localhost:${opsPort}/metrics` }))
}

function start(file: string, env: Record<string, string>): ChildProcess {
  const child = spawn(process.execPath, [join(dist, file)], {
    env: { ...given(...INHERITED), ...env },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    // Outside the process group of the terminal: only this process receives Ctrl-C, and each child gets one signal.
    detached: true,
  })
  children.push(child)
  child.once('exit', () => {
    if (ending) return
    console.error(
      `The ${file === 'main.js' ? 'server' : 'sandbox'} has ended by itself; the demo ends with it.`,
    )
    void end(1)
  })
  return child
}

/** Those variables of the caller's environment that are set. */
function given(...names: string[]): Record<string, string> {
  const set = names.flatMap((name) => {
    const value = process.env[name]
    return value === undefined ? [] : [[name, value]]
  })
  return Object.fromEntries(set)
}

/** What the sandbox sends to its parent: its base URL, and the server's variables for its profile. */
function sandboxAddress(sandbox: ChildProcess): Promise<{ url: string; env: Record<string, string> }> {
  sandbox.stdout?.resume()
  return new Promise((resolve) => {
    sandbox.on('message', (message) => resolve(message as { url: string; env: Record<string, string> }))
  })
}

/** The address at which the server listens. From then on its warnings and failed requests are printed as text. */
function serverAddress(server: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    if (server.stdout === null) return
    let isListening = false
    createInterface(server.stdout).on('line', (line) => {
      const entry = parseLine(line)
      if (entry === null) console.log(line)
      else if (entry.msg === 'listening') {
        isListening = true
        resolve(String(entry.url))
      } else if (
        ['error', 'fatal'].includes(String(entry.level)) ||
        (entry.level === 'warn' && (isListening || entry.event === 'page.script_blocked'))
      ) {
        // Before it listens the server warns also of settings that a demo has on purpose.
        console.log(`  ${describe(entry)}`)
      }
    })
  })
}

function describe({ event, msg, method, path, status, code, level }: Record<string, unknown>): string {
  const time = new Date().toLocaleTimeString()
  if (event !== 'request') return `${time} ${level}: ${msg}`
  return [time, method, path, status, code].filter((part) => part !== undefined && part !== null).join(' ')
}

function parseLine(line: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(line)
    return typeof value === 'object' && value !== null ? { ...value } : null
  } catch {
    return null
  }
}

/** Browsers try both addresses of localhost, so a process on either address could receive their requests. */
function addressesOf(host: string): string[] {
  return host === 'localhost' ? ['127.0.0.1', '::1'] : [host]
}

/** Returns this port if it is free at every host; 0 picks one, not the next one, which another process would pick too. */
async function choosePort(hosts: readonly string[], text: string, name: string): Promise<number> {
  const asked = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN
  if (!(asked <= 65_535)) throw new StartError(`${name} must be a port number, but is "${text}".`)
  for (;;) {
    // Below the ports that the system and the tests choose: this one stays free until the page listens on it.
    const port = asked === 0 ? 10_000 + Math.floor(Math.random() * 5_000) : asked
    let isFree = true
    for (const host of hosts) isFree &&= await isFreeAt(host, port)
    if (isFree) return port
    if (asked !== 0)
      throw new StartError(`Port ${port} is taken. Choose another: ${name}=${port + 1} npm run demo`)
  }
}

function isFreeAt(host: string, port: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const probe = createServer()
    probe.once('error', (error: NodeJS.ErrnoException) => {
      // A machine without IPv6 has no second address.
      if (error.code === 'EADDRINUSE' || host === '::1') resolve(error.code !== 'EADDRINUSE')
      else if (error.code === 'EACCES')
        reject(new StartError(`Port ${port} needs rights that this user lacks. Choose one above 1023.`))
      else reject(new StartError(`Cannot listen on ${host}: ${error.message}`))
    })
    probe.listen(port, host, () => probe.close(() => resolve(true)))
  })
}

/** Stops both children and then this process. A child that does not stop in time is killed. */
async function end(code: number): Promise<void> {
  if (ending) return
  ending = true
  if (code === 0 && children.length > 0) console.log('\n  The demo stops. Its sessions and tokens are gone.')
  const alive = children.filter((child) => child.exitCode === null && child.signalCode === null)
  await Promise.all(
    alive.map((child) => {
      const timer = setTimeout(() => child.kill('SIGKILL'), END_MS)
      child.kill('SIGTERM')
      return new Promise((resolve) => child.once('exit', resolve)).finally(() => clearTimeout(timer))
    }),
  )
  process.exit(code)
}

function welcome(at: { publicUrl: string; sandboxUrl: string; metricsUrl: string }): string {
  return `
  The demo is running.

    Open        ${at.publicUrl}
    Sign in as  alice, password wonderland

  Access tokens live ${TOKEN_SECONDS} seconds here, so that you can watch the server replace them.${
    process.env.STATIC_DIR === undefined && process.env.PUBLIC_URL === undefined
      ? `
  The page shows where they are, searches the browser for them, and breaks the platform on request.`
      : ''
  }

  What the server counts is at ${at.metricsUrl}
  The sandbox that imitates the data platform is at ${at.sandboxUrl}
  Next: docs/getting-started.md, a page of your own in ten minutes.
  Sessions live in memory and end with the demo. Stop it with Ctrl-C.
`
}
