import { once } from 'node:events'
import { createServer, get, type IncomingMessage } from 'node:http'
import t, { type Test } from 'tap'
import { cookieHeader, createBrowser } from '../helpers/browser.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { residentMib, type ServerProcess, startServer } from '../helpers/server-process.ts'
import { platformEnv, signIn, startSandbox } from '../helpers/system.ts'
import { elapsed } from '../helpers/wait.ts'

const MIB = 1024 * 1024
const SIZE = 256 * MIB
const CHUNK = Buffer.alloc(64 * 1024, 'x')

/** A resource server that sends 256 MiB, and nothing for `Small`. */
async function startSource(t: Test): Promise<string> {
  const server = createServer(async (request, response) => {
    if (request.url?.includes('Small')) return response.writeHead(204).end()
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': SIZE })
    for (let sent = 0; sent < SIZE; sent += CHUNK.length) {
      if (!response.write(CHUNK)) await once(response, 'drain')
    }
    response.end()
  })
  return `http://127.0.0.1:${await listenOnLoopback(t, server)}`
}

/** Bytes that came, with a pause after every 2 MiB, and the most memory that the server held meanwhile. */
async function take(server: ServerProcess, path: string, cookie: string, pauseMs = 0) {
  let peak = 0
  const watch = setInterval(() => {
    peak = Math.max(peak, residentMib(server))
  }, 10)
  const headers = { cookie, 'sec-fetch-site': 'same-origin' }
  const [answer] = (await once(get(`${server.url}${path}`, { headers }), 'response')) as [IncomingMessage]
  let bytes = 0
  for await (const chunk of answer) {
    const before = bytes
    bytes += chunk.length
    if (pauseMs > 0 && Math.floor(before / (2 * MIB)) < Math.floor(bytes / (2 * MIB))) await elapsed(pauseMs)
  }
  clearInterval(watch)
  return { status: answer.statusCode, bytes, peak }
}

t.test('256 MiB are relayed in memory that stays flat', async (t) => {
  const source = await startSource(t)
  const sandbox = await startSandbox(t)
  const server = await startServer(t, platformEnv({ authUrl: sandbox.authUrl, baseUrl: source }))
  const browser = createBrowser(server.publicUrl)
  await signIn(browser, sandbox)
  const cookie = cookieHeader(browser)
  // A server that has just started is smaller than one at rest.
  for (let call = 0; call < 200; call += 1) await take(server, '/flux/Small', cookie)
  const rest = residentMib(server)

  // Half of a response: how soon the garbage is collected differs between versions of Node.
  for (const { how, pauseMs } of [
    { how: 'as fast as both sides allow', pauseMs: 0 },
    { how: 'to a slow reader', pauseMs: 15 },
  ]) {
    const { status, bytes, peak } = await take(server, '/flux/Large', cookie, pauseMs)
    t.equal(status, 200, how)
    t.equal(bytes, SIZE, how)
    t.ok(
      peak - rest < 128,
      `${how}: ${Math.round(peak - rest)} MiB above the ${Math.round(rest)} MiB at rest`,
    )
  }
})
