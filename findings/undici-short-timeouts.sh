#!/bin/sh
# undici 7.30.2: a headersTimeout of 100 or 400 ms fires after about a second, one of 1500 ms after about two: its timers tick slowly.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "{\"type\":\"module\"}" > package.json
npm install --silent --no-audit --no-fund undici@7.30.2
cat > run.mjs <<'END'
import { createServer } from 'node:http'
import { Client } from 'undici'

const server = createServer(() => {}).listen(0, '127.0.0.1')
await new Promise((resolve) => server.once('listening', resolve))
const took = {}
for (const headersTimeout of [100, 400, 1500]) {
  const client = new Client(`http://127.0.0.1:${server.address().port}`, { headersTimeout })
  const at = performance.now()
  await client.request({ method: 'GET', path: '/' }).catch(() => {})
  took[headersTimeout] = Math.round(performance.now() - at)
  client.destroy()
}
console.log('undici 7.30.2, headersTimeout and when it fired, both in ms:', JSON.stringify(took))
process.exit(took[100] >= 400 ? 0 : 1)
END
node run.mjs
