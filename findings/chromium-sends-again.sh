#!/bin/sh
# Chromium (playwright-core 1.65.1; CHROMIUM_PATH or chromium): a PUT and a POST whose kept connection ends without a byte are sent
# again by the browser itself. The page sees one success.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "{\"type\":\"module\"}" > package.json
npm install --silent --no-audit --no-fund playwright-core@1.65.1
cat > run.mjs <<'END'
import { createServer } from 'node:http'
import { chromium } from 'playwright-core'

const arrived = []
const server = createServer((request, response) => {
  if (request.url === '/') return response.setHeader('content-type', 'text/html').end('<title>x</title>')
  if (request.url !== '/x') return response.writeHead(404).end()
  arrived.push(request.method)
  request.resume().on('end', () => {
    // As a server that is stopped while it works: the first of each ends without a byte.
    if (arrived.filter((method) => method === request.method).length === 1) request.socket.destroy()
    else response.end('done')
  })
}).listen(0, '127.0.0.1')
await new Promise((resolve) => server.once('listening', resolve))
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM_PATH ?? '/usr/bin/chromium', args: ['--no-sandbox'] })
const page = await browser.newPage()
await page.goto(`http://127.0.0.1:${server.address().port}/`)
const seen = {}
for (const method of ['PUT', 'POST'])
  seen[method] = await page.evaluate(async (method) => {
    await (await fetch('/')).text()
    return await fetch('/x', { method, body: 'x' }).then(({ status }) => status, String)
  }, method)
console.log(`Chromium ${browser.version()}: the page saw ${JSON.stringify(seen)}, the server got ${arrived.join(', ')}`)
await browser.close()
server.close()
process.exit(arrived.filter((method) => method === 'PUT').length === 2 && seen.PUT === 200 ? 0 : 1)
END
node run.mjs
