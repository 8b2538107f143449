import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { cookieHeader, createBrowser } from '../helpers/browser.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { residentMib, startServer } from '../helpers/server-process.ts'
import { platformEnv, signIn, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'

const UPDATES = 300
/** 64 KB of text. Parsed it takes twenty times as much. */
const BODY = `{"a":[${Array(21_600).fill('{}').join()}]}`

const OPERATIONS = { operations: { Update: { method: 'POST', path: '/{wac}/things', body: 'any' } } }

/** A resource server that answers no update until it is released. */
async function startSlow(t: Test) {
  const held: ServerResponse[] = []
  let released = false
  const server = createServer((incoming, response) => {
    incoming.resume()
    response.setHeader('content-type', 'application/json')
    if (released || incoming.method === 'GET') response.end('{}')
    else held.push(response)
  })
  const url = `http://127.0.0.1:${await listenOnLoopback(t, server)}`
  const release = () => {
    released = true
    for (const response of held) response.end('{}')
  }
  return { url, held, release }
}

t.test('updates that wait keep their bytes once, and so many bytes of a session at most', async (t) => {
  const platform = await startSlow(t)
  const sandbox = await startSandbox(t)
  const file = join(makeFolder('operations'), 'operations.json')
  writeFileSync(file, JSON.stringify(OPERATIONS))
  const server = await startServer(t, {
    ...platformEnv({ authUrl: sandbox.authUrl, baseUrl: platform.url }),
    ...{ OAUTH_SCOPE: sandbox.baseUrl, OPERATIONS_FILE: file, UPSTREAM_TIMEOUT_MS: '300000' },
    // On a slow machine the collector would come late, and its garbage would count as kept. Parsed, what waits takes 300 MiB.
    NODE_OPTIONS: '--max-old-space-size=96 --max-semi-space-size=2',
  })
  const browser = createBrowser(server.publicUrl)
  await signIn(browser, sandbox)
  const headers = {
    ...{ cookie: cookieHeader(browser), 'sec-fetch-site': 'same-origin' },
    ...{ 'content-type': 'application/json', 'content-length': BODY.length },
  }
  const update = async (): Promise<IncomingMessage> => {
    const sent = request(`${server.url}/data/DEMO/things`, { method: 'POST', headers, agent: false })
    sent.end(BODY)
    const [answer] = (await once(sent, 'response')) as [IncomingMessage]
    return answer.resume()
  }
  // A server that has just started is smaller than one that has parsed such bodies.
  const first = Array.from({ length: 10 }, update)
  await until('the first updates', () => platform.held.length === first.length)
  const rest = residentMib(server)

  const statuses: (number | undefined)[] = []
  const retryAfter = new Set<string | undefined>()
  const all = Array.from({ length: UPDATES }, async () => {
    const { statusCode, headers } = await update()
    statuses.push(statusCode)
    if (statusCode === 503) retryAfter.add(headers['retry-after'])
  })
  await until('refusals', () => statuses.length >= 60)
  const grown = residentMib(server) - rest
  t.ok(grown < 100, `${Math.round(grown)} MiB for the ${UPDATES - statuses.length} that wait`)
  t.strictSame([...new Set(statuses)], [503], 'what would keep more is refused')
  t.strictSame([...retryAfter], ['5'])
  platform.release()
  await Promise.all([...first, ...all])
  t.strictSame([...new Set(statuses)].sort(), [200, 503], 'and what has waited is sent')
})
