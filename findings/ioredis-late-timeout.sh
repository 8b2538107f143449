#!/bin/sh
# ioredis 6.0.0 (needs redis-server): after the process was busy for longer than commandTimeout, a command is rejected as timed
# out although its reply has been in the socket all the time.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "{\"type\":\"module\"}" > package.json
npm install --silent --no-audit --no-fund ioredis@6.0.0
cat > run.mjs <<'END'
import { spawn } from 'node:child_process'
import { createServer } from 'node:net'
import { Redis } from 'ioredis'

const free = createServer().listen(0, '127.0.0.1')
await new Promise((resolve) => free.once('listening', resolve))
const { port } = free.address()
await new Promise((resolve) => free.close(resolve))
const server = spawn('redis-server', ['--port', port, '--save', '', '--bind', '127.0.0.1'], { stdio: 'ignore' })
try {
  const redis = new Redis(port, { commandTimeout: 200 })
  redis.on('error', () => {})
  await new Promise((resolve) => redis.once('ready', resolve))
  await redis.set('key', 'value')
  const reading = redis.get('key').then((value) => `replied ${value}`, (error) => error.message)
  // The command leaves now; the reply comes within a millisecond.
  await new Promise((resolve) => setImmediate(resolve))
  const until = Date.now() + 500
  while (Date.now() < until);
  const outcome = await reading
  console.log(`ioredis 6.0.0, commandTimeout 200, process busy for 500 ms: ${outcome}`)
  redis.disconnect()
  process.exitCode = outcome === 'Command timed out' ? 0 : 1
} finally {
  server.kill()
}
END
node run.mjs
