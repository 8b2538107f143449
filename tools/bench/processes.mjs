// Starts the programs of the benchmark, each on its assigned core, and ends them all with it.
import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pinned, pinnedFirst } from './machine.mjs'

const READY_MS = 20_000
const STOP_MS = 10_000

// Outlives the benchmark: when the pipe closes, for whatever reason, it kills the remaining processes.
const WATCHDOG = `
alive=
while read -r sign pid; do
  if [ "$sign" = + ]; then alive="$alive $pid"; continue; fi
  rest=
  for p in $alive; do [ "$p" = "$pid" ] || rest="$rest $p"; done
  alive=$rest
done
for p in $alive; do kill -TERM "$p"; done 2>/dev/null
sleep 1
for p in $alive; do kill -KILL "$p"; done 2>/dev/null
rm -rf "$1"
`

/** The processes of one run. `end` stops them in reverse order of their start. */
export function createProcesses() {
  const folder = mkdtempSync(join(tmpdir(), 'bff-bench-'))
  const running = []
  const watchdog = spawn('sh', ['-c', WATCHDOG, 'watchdog', folder], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  watchdog.unref()
  watchdog.stdin.on('error', () => {})
  watchdog.stdin.unref?.()

  /**
   * Starts a program and waits for `ready` (a pattern in its output, or an async function that is
   * retried until it does not throw). `stdout` is a file descriptor; without it the output is kept. A program that
   * is `first` does not wait for others on the cores of the load.
   */
  async function start(
    command,
    args,
    { core, first = false, env = {}, ready, readyMs = READY_MS, stdout = 'pipe', ipc = false },
  ) {
    const [program, programArgs] = first ? pinnedFirst(command, args) : pinned(core, command, args)
    const child = spawn(program, programArgs, {
      cwd: folder,
      env: { PATH: process.env.PATH ?? '', NODE_ENV: 'production', ...env },
      stdio: ipc ? ['ignore', stdout, 'pipe', 'ipc'] : ['ignore', stdout, 'pipe'],
    })
    watchdog.stdin.write(`+ ${child.pid}\n`)
    let output = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text) => {
        output = (output + text).slice(-100_000)
      })
    }
    let over = false
    const ended = new Promise((resolve) => {
      child.once('error', (error) => {
        output += String(error)
        over = true
        resolve()
      })
      child.once('close', () => {
        over = true
        watchdog.stdin.write(`- ${child.pid}\n`)
        resolve()
      })
    })
    async function stop() {
      if (!over) child.kill('SIGTERM')
      const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS)
      await ended
      clearTimeout(late)
    }
    const started = { pid: child.pid, child, output: () => output, ended, stop }
    running.push(started)
    const deadline = performance.now() + readyMs
    while (!(await isReady(ready, output))) {
      if (over) throw new Error(`${command} ended at its start:\n${output}`)
      if (performance.now() > deadline) throw new Error(`${command} is not ready:\n${output}`)
      await new Promise((resolve) => setTimeout(resolve, 25))
    }
    return started
  }

  async function end() {
    for (const started of running.reverse()) await started.stop()
    rmSync(folder, { recursive: true, force: true })
  }

  return { folder, start, end }
}

async function isReady(ready, output) {
  if (ready instanceof RegExp) return ready.test(output)
  try {
    await ready()
    return true
  } catch {
    return false
  }
}

// Below the ephemeral range of the system, from which outgoing connections take their ports.
const FIRST_PORT = 15_000
const PORTS = 17_000
let nextPort = randomInt(PORTS)

/** A TCP port of 127.0.0.1 that was just free, and another one each time, until all were given. */
export async function freePort() {
  for (let tried = 0; tried < PORTS; tried += 1) {
    const port = FIRST_PORT + nextPort
    nextPort = (nextPort + 1) % PORTS
    if (await isFree(port)) return port
  }
  throw new Error('no port is left')
}

function isFree(port) {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', (error) => (error.code === 'EADDRINUSE' ? resolve(false) : reject(error)))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}
