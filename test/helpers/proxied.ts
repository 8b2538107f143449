// A deployment behind the reverse proxies of deploy/, and what each of them must pass on.

import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import http2 from 'node:http2'
import { get } from 'node:https'
import { join } from 'node:path'
import { connect } from 'node:tls'
import type { Test } from 'tap'
import { type Browser, cookieHeader, createBrowser, isProblem } from './browser.ts'
import { createTlsFiles, type Front, type FrontName, startFronts } from './fronts.ts'
import { freePort } from './ports.ts'
import { startRedis } from './redis.ts'
import { startLoad } from './restart-load.ts'
import { type LogLine, type ServerProcess, startServer } from './server-process.ts'
import { CLIENT, platformEnv, signIn, startSandbox, untilReady } from './system.ts'
import { until } from './wait.ts'
import { makeFolder } from './watchdog.ts'

export const NAME = 'app.example.com'
export const ORIGIN = `https://${NAME}`
/** The browser's address, which is not that of the proxies. */
export const BROWSER = '127.0.0.7'
/** They do not pass on that a browser has left: docs/reverse-proxies.md. */
const HIDE_LEAVING: ReadonlySet<string> = new Set(['apache', 'varnish'])
/** The server makes the request id. */
const SETS_NO_ID: ReadonlySet<string> = new Set(['apache', 'varnish'])
/** Passes the body of a response with a length on in larger pieces: docs/reverse-proxies.md. */
const HOLDS_BACK: ReadonlySet<string> = new Set(['varnish'])
const LOGS_NOTHING: ReadonlySet<string> = new Set(['caddy', 'varnish'])
const PAGE = '<!doctype html><title>The page</title>'

const TIMES = {
  // A stalled read ends while it is awaited at the restart.
  UPSTREAM_TIMEOUT_MS: '4000',
  // As docs/reverse-proxies.md advises.
  SHUTDOWN_DELAY_SECONDS: '5',
  SHUTDOWN_SECONDS: '10',
}

type At = Pick<Front, 'httpsPort'>
export type Proxied = Awaited<ReturnType<typeof startProxied>>

function hostOf(number: number): string {
  return `127.0.0.${10 + number}`
}

/** What stands behind the proxies: the sandbox, one Redis, and replicas with the page. */
async function startDeployment(t: Test) {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t, { client: { ...CLIENT, callback: `${ORIGIN}/auth/callback` } })
  const { tls, ca } = await createTlsFiles(NAME)
  const page = makeFolder('page')
  writeFileSync(join(page, 'index.html'), PAGE)
  const [port, opsPort] = [await freePort(), await freePort()]
  return {
    redis,
    sandbox,
    ca,
    behind: { tls, port, opsPort },
    /** `number` from 1 to 3. */
    async start(number: number): Promise<ServerProcess> {
      const replica = await startServer(t, {
        HOST: hostOf(number),
        PORT: String(port),
        OPS_PORT: String(opsPort),
        PUBLIC_URL: ORIGIN,
        TRUST_PROXY: '127.0.0.1',
        SESSION_STORE: 'redis',
        REDIS_URL: redis.url,
        ...platformEnv(sandbox),
        STATIC_DIR: page,
        ...TIMES,
      })
      await untilReady(replica)
      return replica
    },
  }
}

/** Replicas of these numbers over one Redis, and in front of them each of these proxies with its file of deploy/. */
export async function startProxied(t: Test, numbers: readonly number[], names: readonly FrontName[]) {
  const { redis, sandbox, ca, behind, start } = await startDeployment(t)
  const replicas: ServerProcess[] = []
  for (const number of numbers) replicas.push(await start(number))
  const fronts = await startFronts(t, behind, names)
  const browserAt = ({ httpsPort }: At) =>
    createBrowser(ORIGIN, { port: httpsPort, ca, localAddress: BROWSER })
  const logs = (): LogLine[] => replicas.flatMap((replica) => replica.logs())
  return { redis, sandbox, ca, behind, start, replicas, fronts, browserAt, logs }
}

/** The head of the answer to a request without TLS. */
export async function askPlain({ httpPort }: Front, path: string): Promise<IncomingMessage> {
  const request = httpRequest({ host: '127.0.0.1', port: httpPort, path, headers: { host: NAME } })
  const [answer] = (await once(request.end(), 'response')) as [IncomingMessage]
  answer.resume()
  return answer
}

/** A read over HTTP/2, with each cookie in a field of its own, as browsers send them. */
async function readByHttp2({ httpsPort }: Front, ca: string, browser: Browser): Promise<string> {
  const session = http2.connect(ORIGIN, {
    createConnection: () =>
      connect({ host: '127.0.0.1', port: httpsPort, servername: NAME, ca, ALPNProtocols: ['h2'] }),
  })
  const request = session.request({
    ':path': '/auth/session',
    'sec-fetch-site': 'same-origin',
    cookie: cookieHeader(browser).split('; '),
  })
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += chunk
  session.close()
  return text
}

/** A sign-in, calls, streams and a sign-out by way of this proxy. */
export async function passesOn(
  t: Test,
  { sandbox, ca, browserAt, logs }: Proxied,
  front: Front,
): Promise<void> {
  const plain = await askPlain(front, '/flux/a?b=c')
  t.equal(plain.statusCode, 308)
  t.equal(plain.headers.location, `${ORIGIN}/flux/a?b=c`, 'plain HTTP leads to https')

  const browser = browserAt(front)
  const { status, headers } = await signIn(browser, sandbox, '/here')
  t.match([status, headers.location], [303, '/here#_'])
  const { 'x-request-id': id } = headers
  const logged = async (isWanted: (line: LogLine) => boolean): Promise<LogLine> => {
    await until('logged', () => logs().some(isWanted))
    return logs().find(isWanted)!
  }
  const begun = await logged(({ event, reqId }) => event === 'login.succeeded' && reqId === id)
  t.equal(begun.address, BROWSER, 'the address that the proxy saw')
  t.match(id, SETS_NO_ID.has(front.name) ? /^[0-9a-f]{12}-\w+$/ : /^[0-9a-f-]{32,36}$/i, 'the request id')

  const read = await browser.fetch('/flux/temperature', { headers: { 'x-forwarded-for': '203.0.113.9' } })
  t.equal(read.status, 200)
  t.match(read.json(), { wType: 'Flux' })
  const update = { method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{"name":"A"}' }
  t.equal((await browser.fetch('/site/1', update)).status, 200)
  const large = { ...update, body: JSON.stringify({ name: 'A'.repeat(100_000) }) }
  isProblem(t, await browser.fetch('/site/1', large), 413, 'payload_too_large', 'the response of the server')
  const traceparent = `00-${'5'.repeat(32)}-${'7'.repeat(16)}-01`
  const odd = await browser.fetch('/auth//session', { headers: { traceparent } })
  isProblem(t, odd, 404, 'not_found', 'the path arrives unchanged')
  const refused = await logged(
    ({ event, reqId }) => event === 'request' && reqId === odd.headers['x-request-id'],
  )
  t.equal(refused.traceId, undefined, 'the browser does not choose the trace')
  t.equal((await browser.navigate('/anywhere')).text, PAGE, 'the page')
  t.match(await readByHttp2(front, ca, browser), /"authenticated":true/, 'over HTTP/2')

  const options = {
    ...{ host: '127.0.0.1', port: front.httpsPort, servername: NAME, ca, agent: false },
    path: '/flux/temperature',
    headers: { host: NAME, cookie: cookieHeader(browser), 'sec-fetch-site': 'same-origin' },
  }
  if (!HOLDS_BACK.has(front.name)) {
    sandbox.faults.set({ resource: { mode: 'stall' } })
    const stream = get(options)
    const [answer] = (await once(stream, 'response')) as [IncomingMessage]
    const [chunk] = (await once(answer, 'data')) as [Buffer]
    t.match(chunk.toString(), /^\{/, 'data arrives before the resource server has sent the rest')
    t.notOk(answer.complete)
    answer.on('error', () => {})
    stream.destroy()
    sandbox.faults.reset()
  }

  if (!HIDE_LEAVING.has(front.name)) {
    const gate = sandbox.hold('resource')
    t.teardown(() => gate.release())
    const waiting = get(options).on('error', () => {})
    await gate.arrived
    const isAborted = ({ event, path, code }: LogLine) =>
      event === 'request' && path === '/flux/temperature' && code === 'client_gone'
    const aborted = () => logs().filter(isAborted).length
    const before = aborted()
    waiting.destroy()
    await until('the call ends with the browser', () => aborted() === before + 1)
  }

  // A forged address would be counted at the limit of sign-ins, and logged.
  const forged = { method: 'POST', headers: { 'x-forwarded-for': '203.0.113.9' } }
  t.equal((await browser.fetch('/auth/logout', forged)).status, 204)
  t.match((await browser.fetch('/auth/session')).json(), { authenticated: false })
  const ended = await logged(
    ({ event, recordKey }) => event === 'logout.succeeded' && recordKey === begun.recordKey,
  )
  t.equal(ended.address, BROWSER, 'an address that the browser claims is not believed')
  t.notMatch(front.output(), '/auth/callback', 'no log has the code of a callback')
  if (!LOGS_NOTHING.has(front.name)) t.match(front.output(), '/auth/logout', 'of the proxy, which logs')
}

/**
 * Restarts the replicas one by one while users of these proxies read and update: no request fails, nobody is signed out.
 * The next one stops once `whenReady` has resolved, which gets the address of the one that has started.
 */
export async function restartOneByOne(
  t: Test,
  { sandbox, ca, start, replicas, browserAt }: Proxied,
  fronts: readonly At[],
  whenReady: (host: string) => Promise<unknown> = async () => {},
): Promise<void> {
  const users = await Promise.all(
    fronts.map(async (front) => {
      const browser = browserAt(front)
      await signIn(browser, sandbox)
      return { browser, front }
    }),
  )
  const targets = users.map(({ browser, front }) => ({
    url: `https://127.0.0.1:${front.httpsPort}`,
    headers: { host: NAME, cookie: cookieHeader(browser), 'sec-fetch-site': 'same-origin', origin: ORIGIN },
    tls: { ca, servername: NAME },
  }))
  // One client with a kept connection and one with new connections for each proxy.
  const clients = targets.length * 2
  const pick = (client: number) => targets[Math.floor(client / 2)]!
  const load = startLoad(t, pick, clients)
  for (const [at, replica] of replicas.entries()) {
    t.equal(await replica.stop('SIGTERM'), 0)
    replicas[at] = await start(at + 1)
    await whenReady(hostOf(at + 1))
  }
  const counts = await load.end()
  t.strictSame([...counts.keys()], [200], `${JSON.stringify([...counts])}`)
  t.ok((counts.get(200) ?? 0) > 40 * clients, `under load: ${counts.get(200)}`)
  for (const { browser } of users) {
    t.match((await browser.fetch('/auth/session')).json(), { authenticated: true }, 'nobody is signed out')
  }
}
