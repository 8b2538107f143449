/**
 * `npm run dev`, for whoever changes the server: server, sandbox and demo page on one origin of this machine. After each
 * change of a file they are built and started again, and the last ones that worked go on until then.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readFileSync, rmSync, watch } from 'node:fs'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { parseEnv } from 'node:util'
import pretty from 'pino-pretty'
import { handleHelpAndVersion } from '../src/version.ts'
import { startFront } from './front.ts'

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)))
const WATCHED = ['src', 'operator', 'sandbox', 'demo', 'client']
/** An editor writes a file in several steps. */
const QUIET_MS = 50
/** Chunks are loaded late, so a build does not touch the folder of a server that runs. */
const FOLDERS = ['dist.a', 'dist.b']
const SECRET = randomBytes(32).toString('base64url')
const WITHOUT_REDIS =
  'Sessions end when a change restarts the server. To keep them, name a Redis: REDIS_URL=redis://localhost:6379 npm run dev'

type Env = Record<string, string | undefined>

interface Running {
  server: ChildProcess
  url: string
}

const [isInspected, ...args] =
  process.argv[2] === '--inspect' ? [true, ...process.argv.slice(3)] : [false, ...process.argv.slice(2)]
handleHelpAndVersion(
  args,
  `Runs server, sandbox and demo page from your files, and builds and starts them again after each change of one.

  npm run dev                   at http://localhost:3000; PORT is another port
  npm run dev -- --inspect      a debugger reaches the server at 127.0.0.1:9229

  --help                        prints this text
  --version                     prints the version

Variables of the server are read from .env, if it is there, and from the shell. If AUTH_URL is an address of this machine,
the sandbox listens there: end one that you have started.
`,
)
const children = new Set<ChildProcess>()
const changed = new Set<string>()
let wake = (): void => {}
let ending = false

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => void end(0))
for (const folder of WATCHED) watch(join(ROOT, folder), { recursive: true }, () => note(folder))
watch(ROOT, (_event, name) => {
  if (name === '.env') note(name)
})

await run().catch(async (error: NodeJS.ErrnoException) => {
  const isTaken = error.code === 'EADDRINUSE'
  console.error(isTaken ? `${error.message}. Choose another port: PORT=3001 npm run dev` : error)
  await end(1)
})

async function run(): Promise<void> {
  let env = readEnv()
  const port = Number(env.PORT ?? 3000)
  const front = { hosts: ['127.0.0.1', '::1'], port, serverUrl: '', sandboxUrl: '' }
  if (!hasRedis(env)) console.log(WITHOUT_REDIS)
  if (env.PUBLIC_URL !== undefined && env.PUBLIC_URL !== `http://localhost:${port}`)
    console.warn(`PUBLIC_URL is ${env.PUBLIC_URL}: sign-ins go there, and not to http://localhost:${port}.`)
  let sandbox: ChildProcess | null = null
  let isSandboxOld = true
  /** The server's variables for the sandbox's profile. */
  let profile: Env = {}
  let running: Running | null = null
  /** The folder whose browser client is that of the sources. */
  let client: string | null = null

  for (let round = 0; !ending; round += 1) {
    const dist = FOLDERS[round % 2]!
    isSandboxOld ||= changed.has('sandbox')
    if (changed.has('client')) client = null
    // Before the build: what changes while it runs may not be in it, and is built next.
    changed.clear()
    const isBuilt = await build(dist, client)
    if (isBuilt) client = dist
    if (isBuilt && isSandboxOld) {
      if (sandbox !== null) await stop(sandbox)
      isSandboxOld = false
      sandbox = startSandbox(dist, env)
      sandbox.once('message', (message) => {
        profile = (message as { env: Env }).env
      })
      front.sandboxUrl = (await urlOf(sandbox)) ?? ''
      if (front.sandboxUrl === '') return await end(1)
    }
    const next = isBuilt
      ? await startServer(dist, {
          port,
          sandboxUrl: front.sandboxUrl,
          env: { ...profile, ...env },
        })
      : null
    if (next !== null) {
      const before = running
      running = next
      front.serverUrl = next.url
      if (before === null) await startFront(front)
      else await stop(before.server)
      // Node opens its inspector at this signal. With the flag of Node the server from before would have the port still.
      if (isInspected) next.server.kill('SIGUSR1')
    } else {
      console.error(running === null ? 'Nothing runs yet.' : 'The server from before the change goes on.')
      // This folder is built again, and the other one may be in use.
      round += 1
    }
    if (next !== null) console.log(`http://localhost:${port} runs your files. Ctrl-C ends it.`)
    await nextChange()
    env = readEnv()
  }
}

/** The variables of the shell, before those of `.env`. */
function readEnv(): Env {
  const file = join(ROOT, '.env')
  const all: Env = { ...(existsSync(file) ? parseEnv(readFileSync(file, 'utf8')) : {}), ...process.env }
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== ''))
}

/** What is wrong with the sources is printed. */
async function build(dist: string, client: string | null): Promise<boolean> {
  // After a failed start the same folder is built again.
  const reused = client === null || client === dist ? [] : ['--client', client]
  const child = start([join(ROOT, 'scripts/build.mjs'), '--to', dist, ...reused], process.env)
  const [code] = await once(child, 'exit')
  return code === 0
}

/** At the address that `.env` names as the platform, if that is on this machine. */
function startSandbox(dist: string, env: Env): ChildProcess {
  const { hostname, port } = new URL(env.AUTH_URL ?? 'http://localhost:0')
  const isHere = ['localhost', '127.0.0.1', '[::1]'].includes(hostname)
  return start([join(ROOT, dist, 'sandbox/main.js')], {
    ...declaredFor(env),
    ...env,
    HOST: '127.0.0.1',
    PORT: isHere ? port : '0',
    SANDBOX_CLIENT_ID: env.CLIENT_ID,
    SANDBOX_CLIENT_SECRET: env.CLIENT_SECRET,
    SANDBOX_CALLBACK: env.SANDBOX_CALLBACK ?? `${env.PUBLIC_URL ?? 'http://localhost'}/auth/callback`,
  })
}

/** null: it has ended by itself, and its reason is printed. */
async function startServer(
  dist: string,
  { port, sandboxUrl, env }: { port: number; sandboxUrl: string; env: Env },
): Promise<Running | null> {
  const server = start([join(ROOT, dist, 'main.js')], {
    PUBLIC_URL: `http://localhost:${port}`,
    AUTH_URL: sandboxUrl,
    BASE_URL: sandboxUrl,
    CLIENT_ID: 'demo-client',
    CLIENT_SECRET: 'demo-secret',
    SESSION_SECRET: SECRET,
    WAC: 'DEMO',
    STATIC_DIR: join(ROOT, dist, 'demo'),
    ...declaredFor(env),
    ACCESS_LOG: 'all',
    TRUST_PROXY: '127.0.0.1/32,::1/128',
    ...(hasRedis(env) ? {} : { SESSION_STORE: 'memory' }),
    ...env,
    HOST: '127.0.0.1',
    PORT: '0',
    // The one from before the change still has its port.
    OPS_PORT: '0',
  })
  server.stdout!.pipe(pretty({ ignore: 'pid,time,url,opsUrl', singleLine: true }))
  const url = await urlOf(server)
  return url === null ? null : { server, url }
}

/** The operations of the demo page; none for a platform that `.env` names. */
function declaredFor(env: Env): Env {
  return env.AUTH_URL === undefined ? { OPERATIONS_FILE: join(ROOT, 'demo/page/operations.json') } : {}
}

function hasRedis(env: Env): boolean {
  return env.REDIS_URL !== undefined || env.REDIS_URL_FILE !== undefined
}

/** The address that a child sends as a message or logs; null if it ends before, and has printed why. */
function urlOf(child: ChildProcess): Promise<string | null> {
  return new Promise((resolve) => {
    child.once('exit', () => resolve(null))
    child.on('message', (message) => resolve((message as { url: string }).url))
    createInterface(child.stdout!).on('line', (line) => {
      if (line.includes('"event":"listening"')) resolve((JSON.parse(line) as { url: string }).url)
    })
  })
}

function start(args: readonly string[], env: Env): ChildProcess {
  // Outside the process group of the terminal: Ctrl-C comes to this process alone, which ends them.
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    env,
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    detached: true,
  })
  children.add(child)
  child.once('exit', () => children.delete(child))
  return child
}

async function stop(child: ChildProcess): Promise<void> {
  if (!children.has(child)) return
  child.kill('SIGTERM')
  await once(child, 'exit')
}

function note(what: string): void {
  changed.add(what)
  wake()
}

async function nextChange(): Promise<void> {
  if (changed.size === 0) {
    await new Promise<void>((resolve) => {
      wake = resolve
    })
  }
  await new Promise((resolve) => setTimeout(resolve, QUIET_MS))
}

async function end(code: number): Promise<void> {
  if (ending) return
  ending = true
  await Promise.all([...children].map(stop))
  for (const folder of FOLDERS) rmSync(join(ROOT, folder), { recursive: true, force: true })
  process.exit(code)
}
