// Starts each program of dist/ once while the image is built, so that Node keeps its compiled code in
// NODE_COMPILE_CACHE. Node writes that folder when a process ends; in the image it is only read.
import { spawn } from 'node:child_process'
import { join } from 'node:path'

/** From the line that says that a program listens until its start is over. */
const SETTLE_MS = 500

const dist = process.argv[2]
const settings = {
  HOST: '127.0.0.1',
  PORT: '0',
  OPS_PORT: '0',
  PUBLIC_URL: 'http://localhost',
  AUTH_URL: 'http://localhost:9',
  BASE_URL: 'http://localhost:9',
  CLIENT_ID: 'warm',
  CLIENT_SECRET: 'warm',
  SESSION_SECRET: 'only-to-start-once-while-the-image-is-built',
  // Nothing listens there: the code of the Redis client runs all the same.
  REDIS_URL: 'redis://127.0.0.1:9',
}

await run('main.js', [], 'SIGTERM')
await run('sandbox/main.js', [], 'SIGTERM')
await run('sessions.js', ['count'])
await run('doctor.js', [])

/** Runs a program until it ends or, with `stop`, until it has printed a line. Throws for an unexpected end. */
async function run(file, args, stop) {
  const env = { ...process.env, ...settings }
  const child = spawn(process.execPath, [join(dist, file), ...args], { env })
  let output = ''
  let stopping = false
  const listens = (text) => {
    output += text
    if (stop === undefined || stopping || !/"listening"|platform on/.test(output)) return
    stopping = true
    setTimeout(() => child.kill(stop), SETTLE_MS)
  }
  child.stdout.setEncoding('utf8').on('data', listens)
  child.stderr.setEncoding('utf8').on('data', listens)
  const code = await new Promise((resolve) => child.once('close', resolve))
  if (stop !== undefined && code !== 0) throw new Error(`${file} ended with ${code}:\n${output}`)
}
