// Boots dist/ once as production would, with the memory store: it listens, answers /livez, and ends with
// code 0 on SIGTERM.
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { createServer } from 'node:net'
import { createInterface } from 'node:readline'

const opsPort = await freePort()
const server = spawn(process.execPath, ['dist/main.js'], {
  env: {
    PATH: process.env.PATH,
    HOST: '127.0.0.1',
    PORT: '0',
    OPS_PORT: String(opsPort),
    PUBLIC_URL: 'http://localhost:3000',
    AUTH_URL: 'https://auth.example.com',
    BASE_URL: 'https://data.example.com',
    CLIENT_ID: 'boot',
    CLIENT_SECRET: 'boot',
    SESSION_SECRET: randomBytes(32).toString('base64url'),
    SESSION_STORE: 'memory',
  },
  stdio: ['ignore', 'pipe', 'inherit'],
})
const timer = setTimeout(() => fail('it took more than 20 seconds'), 20_000)
const ended = new Promise((resolve) => server.once('exit', (code, signal) => resolve(code ?? signal)))
void ended.then((how) => {
  if (!stopping) fail(`it ended by itself: ${how}`)
})
let stopping = false

for await (const line of createInterface(server.stdout)) {
  console.log(line)
  if (!line.includes('"msg":"listening"')) continue
  const { status } = await fetch(`http://127.0.0.1:${opsPort}/livez`)
  if (status !== 200) fail(`/livez answered ${status}`)
  stopping = true
  server.kill('SIGTERM')
}
const how = await ended
if (how !== 0) fail(`after SIGTERM it ended with ${how}`)
clearTimeout(timer)
console.log('dist/ boots, answers and stops.')

function fail(why) {
  console.error(`dist/ does not boot: ${why}`)
  server.kill('SIGKILL')
  process.exit(1)
}

async function freePort() {
  const probe = createServer()
  await new Promise((resolve) => probe.listen(0, '127.0.0.1', resolve))
  const { port } = probe.address()
  await new Promise((resolve) => probe.close(resolve))
  return port
}
