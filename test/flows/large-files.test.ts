import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, request } from 'node:http'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { cookieHeader, createBrowser } from '../helpers/browser.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { residentMib, startServer } from '../helpers/server-process.ts'
import { platformEnv, signIn, startSandbox } from '../helpers/system.ts'
import { makeFolder } from '../helpers/watchdog.ts'

const MIB = 1024 * 1024
const SIZE = 50 * MIB
const CHUNK = Buffer.alloc(64 * 1024, 'x')

const path = '/{wac}/files/{fileId}'
const parameters = { fileId: 'id' }
const OPERATIONS = {
  GetFile: { method: 'GET', path, parameters, formats: 'any' },
  PutFile: { method: 'PUT', path, parameters, body: { types: ['image/png'], limit: SIZE } },
}

t.test(
  '50 MB up and 50 MB down, to a slow other side too, are streamed in memory that stays flat',
  async (t) => {
    let received = 0
    const source = createServer(async (incoming, response) => {
      for await (const chunk of incoming) {
        received += (chunk as Buffer).length
        // The resource server is slower than the browser.
        if (received % MIB < 64 * 1024) await pause(5)
      }
      if (incoming.method === 'PUT') return response.writeHead(204).end()
      response.writeHead(200, { 'content-type': 'image/png', 'content-length': SIZE })
      for (let sent = 0; sent < SIZE; sent += CHUNK.length)
        if (!response.write(CHUNK)) await once(response, 'drain')
      response.end()
    })
    const baseUrl = `http://127.0.0.1:${await listenOnLoopback(t, source)}`
    const sandbox = await startSandbox(t)
    const file = join(makeFolder('operations'), 'operations.json')
    writeFileSync(file, JSON.stringify({ operations: OPERATIONS }))
    const server = await startServer(t, {
      ...platformEnv({ authUrl: sandbox.authUrl, baseUrl }),
      ...{ OAUTH_SCOPE: sandbox.baseUrl, OPERATIONS_FILE: file },
    })
    const browser = createBrowser(server.publicUrl)
    await signIn(browser, sandbox)
    const common = { cookie: cookieHeader(browser), 'sec-fetch-site': 'same-origin' }

    async function move(method: 'GET' | 'PUT') {
      let peak = 0
      const watch = setInterval(() => {
        peak = Math.max(peak, residentMib(server))
      }, 10)
      const headers =
        method === 'GET' ? common : { ...common, 'content-type': 'image/png', 'content-length': SIZE }
      const asked = request(`${server.url}/data/DEMO/files/a`, { method, headers })
      if (method === 'PUT')
        for (let sent = 0; sent < SIZE; sent += CHUNK.length)
          if (!asked.write(CHUNK)) await once(asked, 'drain')
      asked.end()
      const [answer] = (await once(asked, 'response')) as [IncomingMessage]
      let bytes = 0
      for await (const chunk of answer) {
        bytes += (chunk as Buffer).length
        if (bytes % (2 * MIB) < 64 * 1024) await pause(5)
      }
      clearInterval(watch)
      return { status: answer.statusCode, bytes, peak }
    }

    // A server that has just started is smaller than one that has moved such files.
    t.match(await move('PUT'), { status: 204 })
    t.match(await move('GET'), { status: 200, bytes: SIZE })
    t.equal(received, SIZE)
    const rest = residentMib(server)
    for (const method of ['PUT', 'GET'] as const) {
      const { peak } = await move(method)
      t.ok(peak - rest < 30, `${method}: ${Math.round(peak - rest)} MiB above ${Math.round(rest)} MiB`)
    }
  },
)
