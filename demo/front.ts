import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'

/** The two addresses of the sandbox that the page may use. The first holds no secret, the second breaks things. */
const FOR_SANDBOX = /^\/_sandbox\/(?:stage\.json|scenario\/[a-z-]+)(?:\?|$)/

/** Answered here: what somebody gets who has copied the session cookie. */
const COPIED_COOKIE = '/_demo/copied-cookie'
const SESSION_COOKIE = /(?:^|;) *((?:__Host-Http-)?session=[^;]*)/

/** One origin for the demo, as a reverse proxy makes one of several servers. */
interface Front {
  /** Where the browser comes in. */
  hosts: readonly string[]
  port: number
  /** Looked up for each request, as `sandboxUrl`. */
  serverUrl: string
  sandboxUrl: string
  /** Host of the page, which the sandbox takes for that of another page unless it is a local one. */
  publicHost?: string
}

/**
 * Listens at each host. Requests go to the server, except the page's questions to the sandbox: a page may call no
 * other origin. A production server has no such front.
 */
export async function startFront(front: Front): Promise<void> {
  const handle = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    const { url = '/', method, headers } = incoming
    if (url === COPIED_COOKIE && method === 'POST') {
      void tryCopiedCookie(incoming, outgoing, front)
      return
    }
    const forSandbox = FOR_SANDBOX.test(url)
    const target = new URL(forSandbox ? front.sandboxUrl : front.serverUrl)
    const host = forSandbox && headers.host === front.publicHost ? target.host : headers.host
    const forwardedFor = incoming.socket.remoteAddress ?? ''
    const onward = request({
      host: target.hostname,
      port: target.port,
      path: url,
      method,
      headers: { ...headers, host, 'x-forwarded-for': forwardedFor },
    })
    onward.on('response', (response) => {
      outgoing.writeHead(response.statusCode ?? 502, response.rawHeaders)
      response.on('error', () => outgoing.destroy())
      response.pipe(outgoing)
    })
    onward.on('error', () => outgoing.destroy())
    outgoing.on('close', () => onward.destroy())
    incoming.pipe(onward)
  }
  for (const host of front.hosts) {
    const server = createServer(handle)
    await new Promise<void>((resolve, reject) => {
      // A machine without IPv6 has one address of localhost.
      server.once('error', (error) => (host === '::1' ? resolve() : reject(error)))
      server.listen(front.port, host, resolve)
    })
  }
}

/**
 * Another browser, to which the session cookie of this request was copied, and nothing else: it reads a Flux. Responds
 * with `{ status, reason }` of what it gets; status 0: no response.
 */
async function tryCopiedCookie(
  { headers }: IncomingMessage,
  outgoing: ServerResponse,
  { serverUrl }: Front,
): Promise<void> {
  const respond = (code: number, body: object): void => {
    outgoing.writeHead(code, { 'content-type': 'application/json', 'cache-control': 'no-store' })
    outgoing.end(JSON.stringify(body))
  }
  // A page of another site must not learn it.
  if (headers['sec-fetch-site'] !== 'same-origin') return respond(403, { error: 'cross_origin' })
  const cookie = SESSION_COOKIE.exec(headers.cookie ?? '')?.[1] ?? ''
  const { traceparent } = headers
  try {
    const response = await fetch(`${serverUrl}/flux/temperature?format=JSON`, {
      headers: { cookie, 'x-csrf': '1', ...(typeof traceparent === 'string' ? { traceparent } : {}) },
    })
    const text = await response.text()
    const isProblem = response.headers.get('content-type')?.startsWith('application/problem+json')
    const { reason = null } = isProblem ? (JSON.parse(text) as { reason?: string }) : {}
    respond(200, { status: response.status, reason })
  } catch {
    respond(200, { status: 0, reason: null })
  }
}
