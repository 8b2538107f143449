#!/bin/sh
# undici 7.30.2: after a request was aborted, the client opens one more connection, on which it sends nothing (nodejs/undici#5845).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "{\"type\":\"module\"}" > package.json
npm install --silent --no-audit --no-fund undici@7.30.2
cat > run.mjs <<'END'
import { createServer } from 'node:net'
import { Client } from 'undici'

let connections = 0
let bytes = 0
const server = createServer((socket) => {
  connections += 1
  socket.on('error', () => {})
  socket.on('data', (chunk) => { bytes += connections === 1 ? 0 : chunk.length })
}).listen(0, '127.0.0.1')
await new Promise((resolve) => server.once('listening', resolve))
const client = new Client(`http://127.0.0.1:${server.address().port}`)
const stop = new AbortController()
const aborted = client.request({ method: 'GET', path: '/', signal: stop.signal }).catch((error) => error.name)
await new Promise((resolve) => setTimeout(resolve, 300))
stop.abort()
console.log('undici 7.30.2:', await aborted)
await new Promise((resolve) => setTimeout(resolve, 1_000))
console.log(`connections for one aborted request: ${connections}, bytes on the second: ${bytes}`)
process.exit(connections === 2 && bytes === 0 ? 0 : 1)
END
node run.mjs
