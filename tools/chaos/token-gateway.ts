import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import type { Teardown } from '../../test/helpers/child.ts'
import { listenOnLoopback } from '../../test/helpers/ports.ts'
import type { Clock, TokenRequest } from './history.ts'

/**
 * How the network between a replica and the token endpoint behaves. `cut`: connections end. `frozen`: requests wait, and
 * leave afterwards if their connection still stands. `replies-held`: responses wait.
 */
type GatewayState = 'open' | 'cut' | 'frozen' | 'replies-held'

/** The network between one replica and the token endpoint. Writes down each request, and what became of it. */
export interface TokenGateway {
  readonly url: string
  set(state: GatewayState): void
}

const HEADER = 'x-chaos-request'
const FORWARDED = ['content-type', 'cache-control', 'retry-after', 'www-authenticate']

interface Options {
  replica: number
  sandbox: Sandbox
  requests: TokenRequest[]
  clock: Clock
}

/** Listens until the end of the campaign. */
export async function startTokenGateway(
  t: Teardown,
  { replica, sandbox, requests, clock }: Options,
): Promise<TokenGateway> {
  const sockets = new Set<Socket>()
  let state: GatewayState = 'open'
  let waiting: (() => void)[] = []

  const server = createServer((incoming, response) => {
    // Without a response of the sandbox the replica gets none either.
    handle(incoming, response).catch(() => incoming.socket.destroy())
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => sockets.delete(socket))
    if (state === 'cut') socket.destroy()
  })

  async function handle(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(incoming)
    const token = new URLSearchParams(body).get('refresh_token')
    const request: TokenRequest = {
      ...{
        seq: requests.length,
        replica,
        isRefresh: token !== null,
        token: digestOf(token ?? ''),
        issued: null,
      },
      ...{ arrivedAt: clock(), forwardedAt: null, status: null, deliveredAt: null, closedAt: null },
      ...{ user: null, outcome: null, fault: null },
    }
    requests.push(request)
    response.once('close', () => {
      if (request.deliveredAt === null) request.closedAt = clock()
      wake()
    })

    while (state === 'frozen' && !incoming.socket.destroyed) await changed()
    if (incoming.socket.destroyed) return
    request.forwardedAt = clock()
    const { status, headers, content } = await forward(incoming, body, request.seq)
    request.status = status
    const issued = /"refresh_token":"([^"]+)"/.exec(content)?.[1]
    if (issued !== undefined) request.issued = digestOf(issued)
    while ((state === 'replies-held' || state === 'frozen') && !incoming.socket.destroyed) await changed()
    if (incoming.socket.destroyed) return
    response.writeHead(status, headers).end(content, () => {
      request.deliveredAt = clock()
    })
  }

  async function forward({ url, headers }: IncomingMessage, body: string, seq: number) {
    const sent = { 'content-type': headers['content-type'] ?? '', [HEADER]: String(seq) }
    const got = await fetch(`${sandbox.url}${url}`, {
      method: 'POST',
      headers: sent,
      body,
      redirect: 'manual',
    })
    const kept = [...got.headers].filter(([name]) => FORWARDED.includes(name))
    return { status: got.status, headers: Object.fromEntries(kept), content: await got.text() }
  }

  function changed(): Promise<void> {
    return new Promise((resolve) => waiting.push(resolve))
  }

  function wake(): void {
    const all = waiting
    waiting = []
    for (const resolve of all) resolve()
  }

  const port = await listenOnLoopback(t, server)
  return {
    url: `http://127.0.0.1:${port}`,
    set(next) {
      state = next
      if (next === 'cut') for (const socket of sockets) socket.destroy()
      wake()
    },
  }
}

/** Takes over what the sandbox's journal knows of the requests. */
export function readJournal(sandbox: Sandbox, requests: readonly TokenRequest[]): void {
  for (const { headers, username, outcome, fault } of sandbox.journal.entries({ endpoint: 'token' })) {
    const request = requests[Number(headers[HEADER] ?? -1)]
    if (request !== undefined) Object.assign(request, { user: username, outcome, fault })
  }
}

/** A name for a token, from which it cannot be found. */
function digestOf(token: string): string {
  return createHash('sha256').update(token).digest('hex').slice(0, 8)
}
