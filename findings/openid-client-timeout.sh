#!/bin/sh
# openid-client 6.9.0: a timeout with hundredths of a second fails before the request is sent, or not, by its binary fraction.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "{\"type\":\"module\"}" > package.json
npm install --silent --no-audit --no-fund openid-client@6.9.0
cat > run.mjs <<'END'
import { createServer } from 'node:http'
import * as client from 'openid-client'

const server = createServer((request, response) => {
  response.setHeader('content-type', 'application/json')
  response.end('{"access_token":"a","token_type":"bearer"}')
}).listen(0, '127.0.0.1')
await new Promise((resolve) => server.once('listening', resolve))
const issuer = `http://127.0.0.1:${server.address().port}`
const config = new client.Configuration({ issuer, token_endpoint: `${issuer}/token` }, 'id', {}, client.ClientSecretPost('s'))
client.allowInsecureRequests(config)
const seen = {}
for (const seconds of [2, 2.01, 2.5]) {
  config.timeout = seconds
  seen[seconds] = await client.clientCredentialsGrant(config).then(() => 'granted', (error) => error.cause?.code ?? error.code)
}
server.close()
console.log('openid-client 6.9.0, timeout in seconds and outcome:', JSON.stringify(seen))
process.exit(seen[2] === 'granted' && seen[2.5] === 'granted' && seen[2.01] !== 'granted' ? 0 : 1)
END
node run.mjs
