import { spawnSync } from 'node:child_process'
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { startChild, waitForOutput } from '../helpers/child.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { runServer, SERVER_ENV, startBuilt, startServer } from '../helpers/server-process.ts'
import { makeFolder } from '../helpers/watchdog.ts'

t.test('a faulty configuration ends the process at once, naming every fault and no secret', async (t) => {
  const run = await runServer(t, {
    ...SERVER_ENV,
    PUBLIC_URL: 'https://app.example.com/path',
    PORT: 'many',
    SESSION_SECRET: 'too-short',
    CLIENT_SECRET: undefined,
    SESSION_STORE: 'redis',
    ...atStart(PRINT_CPU),
  })
  t.equal(run.code, 1)
  for (const name of ['PUBLIC_URL', 'PORT', 'SESSION_SECRET', 'CLIENT_SECRET', 'REDIS_URL']) {
    t.match(run.stderr, new RegExp(`\\b${name} `), `${name} is named`)
  }
  t.notMatch(run.stdout + run.stderr, 'too-short')
  // A second is what a machine of today needs for about eight starts of Node.
  const bare = startChild(t, process.execPath, ['--eval', PRINT_CPU])
  await bare.ended
  const [took, start] = [run.stdout, bare.stdout()].map((text) => Number(text))
  t.ok(took! < 8 * start!, `${took} microseconds, and ${start} for a start of Node`)
})

const PRINT_CPU = `process.on('exit', () => {
  const { user, system } = process.cpuUsage()
  console.log(user + system)
})`

/** Runs this code in a process before its program. */
function atStart(code: string): { NODE_OPTIONS: string } {
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}` }
}

t.test('a crash is logged with places in the source files, not in the bundle', async (t) => {
  const run = await runServer(t, {
    ...SERVER_ENV,
    PUBLIC_URL: 'http://localhost',
    // The server listens to signals last.
    ...atStart(`const { on } = process
      process.on = function (name, ...rest) {
        if (name === 'SIGTERM') throw new Error('no signals here')
        return on.call(this, name, ...rest)
      }`),
  })
  t.equal(run.code, 1)
  const { event, err } = JSON.parse(run.stdout.trim().split('\n').at(-1) ?? '')
  t.match({ event, message: err.message }, { event: 'crash', message: 'no signals here' })
  t.match(err.stack, /at runReplica \([^)]*\/src\/process\/replica\.ts:\d+:\d+\)/)
})

t.test('a port that the system picked is printed at every log level', async (t) => {
  const child = startBuilt(t, 'main.js', {
    ...SERVER_ENV,
    PORT: '0',
    OPS_PORT: '0',
    LOG_LEVEL: 'silent',
    PUBLIC_URL: 'http://localhost',
  })
  const line = await waitForOutput(child, (text) => (text.endsWith('\n') ? text : null))
  const { url, ...others } = JSON.parse(line ?? '') as Record<string, unknown>
  t.match(others, { level: 'info', time: /^\d{4}-/, event: 'listening', msg: 'listening' })
  t.equal((await fetch(`${url}/auth/session`)).status, 200)
  t.strictSame(listeningPorts(child.pid), [portOfUrl(String(url))], 'OPS_PORT=0 opens no port')
  await child.stop('SIGTERM')
})

/** The TCP ports on which a process listens, by the tables of Linux. */
function listeningPorts(pid: number): number[] {
  const files = readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`))
  return ['tcp', 'tcp6']
    .flatMap((table) => readFileSync(`/proc/${pid}/net/${table}`, 'utf8').trim().split('\n').slice(1))
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , , state, , , , , , inode]) => state === '0A' && files.includes(`socket:[${inode}]`))
    .map(([, local = '']) => Number.parseInt(local.split(':')[1]!, 16))
}

t.test('a process that cannot listen ends with code 1 and names the variable', async (t) => {
  const first = await startServer(t)
  const { port } = new URL(first.url)
  for (const [env, says] of [
    [{ PORT: port }, `PORT: port ${port} is in use`],
    [{ OPS_PORT: port }, `OPS_PORT: port ${port} is in use`],
    // RFC 5737: an address of no machine.
    [{ HOST: '192.0.2.1' }, 'HOST: 192.0.2.1 is not an address of this machine'],
    [{ HOST: 'nobody.invalid' }, 'HOST: nobody.invalid is not an address of this machine'],
  ] as const) {
    const run = await runServer(t, {
      ...SERVER_ENV,
      PORT: '0',
      OPS_PORT: '0',
      PUBLIC_URL: 'http://localhost',
      ...env,
    })
    t.equal(run.code, 1, says)
    t.match(run.stderr, `The server could not start. ${says}`)
  }
})

t.test('an install without development packages says how to build, and reports an older build', async (t) => {
  const folder = makeFolder('install')
  for (const name of [
    'src',
    'operator',
    'sandbox',
    'demo',
    'client',
    'scripts',
    'tsconfig.json',
    'package-lock.json',
  ])
    cpSync(name, join(folder, name), { recursive: true })
  const run = (...args: string[]) => {
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' })
    return { status, stderr: stderr.trim() }
  }
  const install = () => run('scripts/build.mjs', '--if-possible')
  t.strictSame(install(), { status: 0, stderr: '' })
  t.match(run('dist/main.js'), {
    status: 1,
    stderr: /^dist\/ cannot be built .* run "npm ci --include=dev"/,
  })

  mkdirSync(join(folder, 'dist'), { recursive: true })
  for (const name of ['main.js', 'sources.txt']) cpSync(join('dist', name), join(folder, 'dist', name))
  t.strictSame(install(), { status: 0, stderr: '' }, 'a build of these sources stays')
  const otherSources = { status: 1, stderr: /^dist\/ was built from other sources/ }
  for (const name of ['src/main.ts', 'client/bff-client.ts', 'scripts/build.mjs', 'package-lock.json']) {
    const path = join(folder, name)
    const original = readFileSync(path)
    appendFileSync(path, '\n')
    t.match(install(), otherSources, `${name} has changed`)
    writeFileSync(path, original)
  }
  t.strictSame(install(), { status: 0, stderr: '' })
  renameSync(join(folder, 'demo/page/look.css'), join(folder, 'demo/page/looks.css'))
  t.match(install(), otherSources, 'a file has another name')
  const kept = readFileSync(join(folder, 'dist/main.js'))
  t.ok(kept.equals(readFileSync('dist/main.js')), 'running replicas keep their files')
})
