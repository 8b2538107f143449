import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import { request as httpsRequest } from 'node:https'
import t, { type Test } from 'tap'
import { createTlsFiles, type Front, LACKS_FRONTS, startFronts, withEachFront } from '../helpers/fronts.ts'
import { freePort } from '../helpers/ports.ts'
import { until } from '../helpers/wait.ts'

const NAME = 'app.example.com'
const WRITES = ['PUT', 'POST', 'PATCH', 'DELETE'] as const
/** It sends no request again that it has sent. */
const REPEATS_NO_READ: ReadonlySet<string> = new Set(['apache'])
/** What each sends to another replica where no connection was made, if not all. */
const UNCONNECTED: Readonly<Record<string, readonly string[]>> = {
  // Caddy has closed the body after a refused connection (caddyserver/caddy#7546).
  caddy: ['GET', 'DELETE'],
  varnish: ['GET'],
}
const ADDRESSES = ['127.0.0.11', '127.0.0.12', '127.0.0.13'] as const

/** Three servers in the place of replicas, which can lose the connection of a request that they have received. */
async function startReplicas(t: Test) {
  const [port, opsPort] = [await freePort(), await freePort()]
  const received: { method: string; by: string }[] = []
  let die: 'closed' | 'reset' | null = null
  const answer = (by: string) => (request: IncomingMessage, response: ServerResponse) => {
    // Apache and Varnish ask for readiness here.
    if (request.url === '/auth/ready') return void response.writeHead(204, { connection: 'close' }).end()
    request.resume().on('end', () => {
      received.push({ method: request.method ?? '', by })
      const how = die
      die = null
      // As a replica that is stopping: a proxy cannot see in time that a kept connection has just ended.
      if (how === null) response.setHeader('connection', 'close').end('done')
      else if (how === 'closed') request.socket.destroy()
      else request.socket.resetAndDestroy()
    })
  }
  const listen = async (at: number, host: string, listener: RequestListener): Promise<() => void> => {
    const server = createServer(listener).listen(at, host)
    const stop = () => void server.close(() => {}).closeAllConnections()
    t.teardown(stop)
    await once(server, 'listening')
    return stop
  }
  const start = (host: string) => listen(port, host, answer(host))
  const stops = await Promise.all(ADDRESSES.map(start))
  // The health of each: no request is lost there.
  for (const host of ADDRESSES) await listen(opsPort, host, (_request, response) => response.end())
  return {
    port,
    opsPort,
    /** The first of the replicas refuse connections, so many. */
    stop(count: number): void {
      for (const end of stops.slice(0, count)) end()
    },
    async startAgain(count: number): Promise<void> {
      stops.splice(0, count, ...(await Promise.all(ADDRESSES.slice(0, count).map(start))))
    },
    /** The requests that arrived since the last call. */
    taken: () => received.splice(0),
    /** The next request is received, and its connection ends without a response. */
    dieOnce(how: 'closed' | 'reset'): void {
      die = how
    },
  }
}

async function startSystem(t: Test) {
  const replicas = await startReplicas(t)
  const { tls, ca } = await createTlsFiles(NAME)
  const fronts = await startFronts(t, { ...replicas, tls })

  async function ask({ httpsPort }: Front, method: string, path = '/'): Promise<number | undefined> {
    const body = method === 'GET' || method === 'DELETE' ? undefined : '{"name":"A"}'
    const length = body === undefined ? {} : { 'content-length': String(body.length) }
    const request = httpsRequest({
      ...{ host: '127.0.0.1', port: httpsPort, servername: NAME, ca, agent: false, method, path },
      headers: { host: NAME, ...length },
    })
    const [response] = (await once(request.end(body), 'response')) as [IncomingMessage]
    await once(response.resume(), 'end')
    return response.statusCode
  }
  /** nginx uses no replica for two seconds after it lost a request, and HAProxy and Caddy ask for its health. */
  async function untilInUse(front: Front, count: number): Promise<void> {
    const used = new Set<string>()
    await until(`${count} replicas get requests`, async () => {
      await ask(front, 'GET')
      for (const { by } of replicas.taken()) used.add(by)
      return used.size >= count
    })
  }
  return { ...replicas, ask, untilInUse, fronts }
}

const skip = LACKS_FRONTS
t.test('behind the reverse proxies of deploy/, where a replica loses a request', { skip }, async (t) => {
  const { ask, untilInUse, taken, dieOnce, stop, startAgain, fronts } = await startSystem(t)
  const methods = () => taken().map(({ method }) => method)

  await withEachFront(t, fronts, 'sends a read again, or says that it failed', async (t, front) => {
    const isRepeated = !REPEATS_NO_READ.has(front.name)
    for (const how of ['closed', 'reset'] as const) {
      await untilInUse(front, 2)
      dieOnce(how)
      t.equal(await ask(front, 'GET'), isRepeated ? 200 : 502, how)
      t.strictSame(methods(), isRepeated ? ['GET', 'GET'] : ['GET'], how)
    }
  })

  const noOther = 'sends no other request again that a replica has received'
  await withEachFront(t, fronts, noOther, async (t, front) => {
    for (const method of WRITES) {
      for (const how of ['closed', 'reset'] as const) {
        const what = `${method} ${how}`
        await untilInUse(front, 2)
        dieOnce(how)
        t.equal(await ask(front, method), front.name === 'varnish' ? 503 : 502, what)
        t.strictSame(methods(), [method], what)
      }
    }
  })

  const unconnected = 'sends any request to another replica if no connection was made'
  await withEachFront(t, fronts, unconnected, async (t, front) => {
    for (const count of [1, 2]) {
      for (const method of UNCONNECTED[front.name] ?? ['GET', ...WRITES]) {
        const what = `${method}, ${count} refuse`
        await untilInUse(front, 3)
        stop(count)
        // nginx takes turns, so one of three is meant for the first replica that refuses it.
        for (const _ of ADDRESSES) t.equal(await ask(front, method, '/site/a%2Fb//c'), 200, what)
        t.strictSame(methods(), [method, method, method], what)
        await startAgain(count)
      }
    }
  })
})
