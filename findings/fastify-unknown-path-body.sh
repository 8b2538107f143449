#!/bin/sh
# Fastify 5.12.8: a POST to a path without a route gets its 404 after its body was read, not before.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "{\"type\":\"module\"}" > package.json
npm install --silent --no-audit --no-fund fastify@5.12.8
cat > run.mjs <<'END'
import { request } from 'node:http'
import Fastify from 'fastify'

const app = Fastify()
await app.listen({ port: 0, host: '127.0.0.1' })
const { port } = app.server.address()
const body = JSON.stringify('x'.repeat(100_000))
let answered = false
const sending = request({ port, method: 'POST', path: '/nothing', headers: { 'content-type': 'application/json', 'content-length': body.length } })
const status = new Promise((resolve) => sending.on('response', ({ statusCode }) => { answered = true; resolve(statusCode) }))
sending.write(body.slice(0, 50_000))
await new Promise((resolve) => setTimeout(resolve, 1_000))
const early = answered
sending.end(body.slice(50_000))
console.log(`Fastify 5.12.8: answered after half of the body: ${early}; after all of it: ${await status}`)
process.exit(!early && (await status) === 404 ? 0 : 1)
END
node run.mjs
