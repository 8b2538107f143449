#!/bin/sh
# ioredis 6.0.0 (needs redis-server, for example Debian's 7.0): CLIENT TRACKING is accepted over RESP3, and no event tells of an
# invalidation. The bytes arrive.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "{\"type\":\"module\"}" > package.json
npm install --silent --no-audit --no-fund ioredis@6.0.0
cat > run.mjs <<'END'
import { execFileSync, spawn } from 'node:child_process'
import { createServer, connect } from 'node:net'
import { Redis } from 'ioredis'

const free = createServer().listen(0, '127.0.0.1')
await new Promise((resolve) => free.once('listening', resolve))
const { port } = free.address()
await new Promise((resolve) => free.close(resolve))
const server = spawn('redis-server', ['--port', port, '--save', '', '--bind', '127.0.0.1'], { stdio: 'ignore' })
try {
  const [one, other] = [new Redis(port), new Redis(port)]
  for (const each of [one, other]) each.on('error', () => {})
  const accepted = await one.call('CLIENT', 'TRACKING', 'ON')
  const events = []
  const emit = one.emit
  one.emit = function (name, ...rest) {
    events.push(String(name))
    return emit.call(this, name, ...rest)
  }
  await other.set('key', '1')
  await one.get('key')
  let bytes = ''
  one.stream.on('data', (chunk) => { bytes += chunk })
  await other.set('key', '2')
  // What was pushed is there before the answer to this.
  await one.ping()
  const version = execFileSync('redis-server', ['--version']).toString().split(' ')[2]
  console.log(`ioredis 6.0.0, Redis ${version}: CLIENT TRACKING ${accepted}, events ${JSON.stringify(events)}, bytes ${JSON.stringify(bytes)}`)
  one.disconnect()
  other.disconnect()
  process.exitCode = accepted === 'OK' && bytes.includes('invalidate') && events.length === 0 ? 0 : 1
} finally {
  server.kill()
}
END
node run.mjs
