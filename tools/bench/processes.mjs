// Starts the programs of a run, each on its core, and ends them with it.
import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { pinned } from './machine.mjs'

const READY_MS = 30_000
const STOP_MS = 10_000

/** The processes of one run, and a folder for their files. `end` stops them in reverse order of their start. */
export function createProcesses() {
  const folder = mkdtempSync(join(tmpdir(), 'bff-bench-'))
  const running = []

  /**
   * Starts a program on the cores `server` or `load`, and waits for `ready`: a pattern in its output, or an async
   * function that is retried until it does not throw. `stdout` is a file descriptor; without it the output is kept.
   */
  async function start(command, args, { core, env = {}, ready, stdout = 'pipe', ipc = false }) {
    const child = spawn(...pinned(core, command, args), {
      cwd: folder,
      env: { PATH: process.env.PATH ?? '', NODE_ENV: 'production', ...env },
      stdio: ['ignore', stdout, 'pipe', ...(ipc ? ['ipc'] : [])],
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream?.setEncoding('utf8').on('data', (text) => {
        output = (output + text).slice(-100_000)
      })
    let over = false
    const ended = new Promise((resolve) => {
      child.once('close', resolve).once('error', resolve)
    }).then(() => {
      over = true
    })
    async function stop() {
      if (!over) child.kill('SIGTERM')
      const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS)
      await ended
      clearTimeout(late)
    }

    /** Sends a message to the program and resolves with its reply. */
    function ask(message) {
      return new Promise((resolve, reject) => {
        const onEnd = () => reject(new Error(`${args[0]} ended:\n${output}`))
        child.once('close', onEnd)
        child.once('message', (reply) => {
          child.off('close', onEnd)
          resolve(reply)
        })
        child.send(message)
      })
    }

    const started = { pid: child.pid, output: () => output, ended, stop, ask }
    running.push(started)
    const deadline = performance.now() + READY_MS
    while (!(await isReady(ready, output))) {
      if (over) throw new Error(`${command} ended at its start:\n${output}`)
      if (performance.now() > deadline) throw new Error(`${command} is not ready:\n${output}`)
      await pause(5)
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
  return await ready().then(
    () => true,
    () => false,
  )
}

// Below the range from which outgoing connections take their ports.
const FIRST_PORT = 15_000
const PORTS = 17_000
let nextPort = randomInt(PORTS)

/** A TCP port of 127.0.0.1 that was just free, and another one each time. */
export async function freePort() {
  for (;;) {
    const port = FIRST_PORT + nextPort
    nextPort = (nextPort + 1) % PORTS
    const server = createServer()
    const isFree = await new Promise((resolve) => {
      server.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true))
    })
    server.close()
    if (isFree) return port
  }
}
