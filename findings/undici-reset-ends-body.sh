#!/bin/sh
# undici 7.30.2: a body without a length that ends by a reset of the connection (RST) is complete to the reader, without an error.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "{\"type\":\"module\"}" > package.json
npm install --silent --no-audit --no-fund undici@7.30.2
cat > run.mjs <<'END'
import { createServer } from 'node:net'
import { request } from 'undici'

const server = createServer((socket) => {
  socket.on('error', () => {})
  socket.once('data', () => {
    socket.write('HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nConnection: close\r\n\r\na,b\n1,2\n')
    setTimeout(() => socket.resetAndDestroy(), 200)
  })
}).listen(0, '127.0.0.1')
await new Promise((resolve) => server.once('listening', resolve))
const { body } = await request(`http://127.0.0.1:${server.address().port}/`)
const outcome = await body.text().then((text) => `complete: ${JSON.stringify(text)}`, (error) => error.code ?? error.message)
console.log(`undici 7.30.2, connection reset in the middle of a body: ${outcome}`)
process.exit(outcome.startsWith('complete') ? 0 : 1)
END
node run.mjs
