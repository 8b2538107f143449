import { once } from 'node:events'
import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { JournalEntry } from '../../sandbox/journal.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { freePort } from '../../test/helpers/ports.ts'
import { elapsed } from '../../test/helpers/wait.ts'
import { type Clock, digestOf, type TokenRequest } from './history.ts'
import { resetConnection } from './network.ts'

/**
 * How the network between a replica and the token endpoint behaves. `cut`: connections are reset. `refused`: nothing
 * listens. `frozen`: requests wait, and leave afterwards if their connection still stands. `delayed`: requests arrive late,
 * also when their connection is gone by then. `replies-held`: responses wait.
 */
type GatewayState = 'open' | 'cut' | 'refused' | 'frozen' | 'delayed' | 'replies-held'

/** The network between one replica and the token endpoint. Writes down each request, and what became of it. */
export interface TokenGateway {
  readonly url: string
  set(state: GatewayState, delayMs?: number): Promise<void>
  /** The next so many requests for a refresh are lost: before the sandbox sees them, or after it has responded. */
  lose(when: 'before' | 'after', times: number, fault: string): void
  connections(): number
  close(): void
}

const HEADER = 'x-chaos-request'

type TokenRecords = ReturnType<typeof createTokenRecords>

/** What all gateways of a campaign share: the requests, and which token belongs to which user. */
export function createTokenRecords(sandbox: Sandbox, requests: TokenRequest[]) {
  const owners = new Map<string, string>()
  const secrets = new Set<string>()
  const open = new Map<number, { request: TokenRequest; entry: JournalEntry | null }>()
  let seq = 0

  return {
    /** Every code and token that was issued, to look for in logs. */
    secrets,
    owners,

    /** Notes the user that a code belongs to. */
    setOwner(secret: string, user: string): void {
      owners.set(secret, user)
      secrets.add(secret)
    },

    /** Records a request that has arrived. */
    begin({
      replica,
      form,
      path,
      at,
    }: {
      replica: number
      form: URLSearchParams
      path: string
      at: number
    }): TokenRequest {
      const grant = form.get('grant_type')
      const token = form.get('refresh_token') ?? form.get('code') ?? form.get('token') ?? ''
      const kind = path.endsWith('/revoke')
        ? 'revoke'
        : grant === 'refresh_token'
          ? 'refresh'
          : grant === 'authorization_code'
            ? 'code'
            : 'other'
      seq += 1
      const tokenRequest: TokenRequest = {
        ...{ seq, replica, kind, token: digestOf(token), user: owners.get(token) ?? null, arrivedAt: at },
        ...{ forwardedAt: null, respondedAt: null, status: null, deliveredAt: null, closedAt: null },
        ...{ lostBy: null, outcome: null, fault: null },
      }
      requests.push(tokenRequest)
      open.set(seq, { request: tokenRequest, entry: null })
      return tokenRequest
    },

    /** Takes over what the sandbox's journal knows of the requests. */
    readJournal(): void {
      if (open.size === 0) return
      for (const endpoint of ['token', 'revoke'] as const) {
        for (const entry of sandbox.journal.entries({ endpoint })) {
          const found = open.get(Number(entry.headers[HEADER]))
          if (found !== undefined) found.entry = entry
        }
      }
      for (const [number, { request: tokenRequest, entry }] of open) {
        if (entry !== null) {
          tokenRequest.outcome = entry.outcome
          tokenRequest.fault = entry.fault
        }
        const over = tokenRequest.deliveredAt !== null || tokenRequest.closedAt !== null
        const neverPassed = tokenRequest.forwardedAt === null && tokenRequest.lostBy !== null
        if (over && (neverPassed || tokenRequest.outcome !== null)) open.delete(number)
      }
    },
  }
}

/** Listens until `close`. */
export async function startTokenGateway({
  replica,
  sandbox,
  records,
  clock,
}: {
  replica: number
  sandbox: Sandbox
  records: TokenRecords
  clock: Clock
}): Promise<TokenGateway> {
  const sockets = new Set<Socket>()
  const agent = new Agent({ keepAlive: true, maxSockets: 64 })
  let state: GatewayState = 'open'
  let delayMs = 0
  const losses = { before: { left: 0, fault: '' }, after: { left: 0, fault: '' } }
  let waiting: (() => void)[] = []

  const server = createServer((incoming, response) => {
    handle(incoming, response).catch(() => response.destroy())
  })
  server.keepAliveTimeout = 120_000
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => sockets.delete(socket))
    if (state === 'cut') resetConnection(socket)
  })

  async function handle(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await textOf(incoming)
    const form = new URLSearchParams(body)
    const tokenRequest = records.begin({ replica, form, path: incoming.url ?? '', at: clock() })
    const socket = incoming.socket
    const isGone = () => socket.destroyed
    response.once('close', () => {
      if (tokenRequest.deliveredAt === null) tokenRequest.closedAt ??= clock()
    })

    if (tokenRequest.kind === 'refresh' && losses.before.left > 0) {
      losses.before.left -= 1
      tokenRequest.lostBy = losses.before.fault
      return resetConnection(socket)
    }
    if (state === 'delayed') await elapsed(delayMs)
    while (state === 'frozen' && !isGone()) await changed()
    if (state !== 'delayed' && isGone()) {
      tokenRequest.lostBy ??= 'the connection was gone before the request passed'
      return
    }

    tokenRequest.forwardedAt = clock()
    const forwarded = await forward(incoming, response, { body, seq: tokenRequest.seq })
    if (forwarded === null) {
      tokenRequest.lostBy ??= 'the sandbox gave no response'
      return resetConnection(socket)
    }
    tokenRequest.respondedAt = clock()
    tokenRequest.status = forwarded.status
    learn(forwarded.body, tokenRequest.user ?? records.owners.get(form.get('code') ?? '') ?? null)
    while ((state === 'replies-held' || state === 'frozen') && !isGone()) await changed()
    if (isGone()) {
      tokenRequest.lostBy ??= 'the connection was gone before the response passed'
      return
    }
    if (tokenRequest.kind === 'refresh' && losses.after.left > 0) {
      losses.after.left -= 1
      tokenRequest.lostBy = losses.after.fault
      return resetConnection(socket)
    }
    response.writeHead(forwarded.status, forwarded.headers)
    response.end(forwarded.body, () => {
      tokenRequest.deliveredAt = clock()
    })
  }

  /** The response of the sandbox; null if there is none, or it is incomplete. */
  function forward(
    incoming: IncomingMessage,
    response: ServerResponse,
    { body, seq }: { body: string; seq: number },
  ): Promise<{ status: number; headers: Record<string, string>; body: Buffer } | null> {
    return new Promise((resolve) => {
      const headers = { ...incoming.headers, [HEADER]: String(seq) }
      delete headers.connection
      const outgoing = request(
        `${sandbox.url}${incoming.url}`,
        { method: incoming.method ?? 'POST', headers, agent },
        (received) => {
          const chunks: Buffer[] = []
          received.on('data', (chunk: Buffer) => chunks.push(chunk))
          received.on('error', () => resolve(null))
          received.on('end', () => {
            const kept = Object.entries(received.headers).filter(([name]) => KEPT.has(name))
            const texts = Object.fromEntries(kept.map(([name, value]) => [name, String(value)]))
            resolve({ status: received.statusCode ?? 502, headers: texts, body: Buffer.concat(chunks) })
          })
        },
      )
      outgoing.on('error', () => resolve(null))
      // A server whose client has gone learns of it; what it does meanwhile it has done.
      response.once('close', () => outgoing.destroy())
      outgoing.end(body)
    })
  }

  function learn(body: Buffer, user: string | null): void {
    let tokens: Record<string, unknown>
    try {
      tokens = JSON.parse(body.toString()) as Record<string, unknown>
    } catch {
      return
    }
    for (const member of ['access_token', 'refresh_token']) {
      const token = tokens[member]
      if (typeof token !== 'string') continue
      records.secrets.add(token)
      if (user !== null) records.owners.set(token, user)
    }
  }

  function changed(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(done, 100)
      function done(): void {
        clearTimeout(timer)
        resolve()
      }
      waiting.push(done)
    })
  }

  // Not a port of the system's choice: it has to be free again after `refused`.
  const port = await freePort()
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')

  return {
    url: `http://127.0.0.1:${port}`,
    async set(next, ms = 0) {
      const before = state
      state = next
      delayMs = ms
      if (next === 'cut' || next === 'refused') for (const socket of sockets) resetConnection(socket)
      if (next === 'refused' && before !== 'refused') server.close()
      if (before === 'refused' && next !== 'refused') {
        server.listen(port, '127.0.0.1')
        await once(server, 'listening')
      }
      const all = waiting
      waiting = []
      for (const done of all) done()
      if (next === 'open') losses.before.left = losses.after.left = 0
    },
    lose(when, times, fault) {
      losses[when] = { left: times, fault }
    },
    connections: () => sockets.size,
    close() {
      for (const socket of sockets) socket.destroy()
      server.close()
      agent.destroy()
    },
  }
}

const KEPT = new Set(['content-type', 'cache-control', 'pragma', 'retry-after', 'www-authenticate'])

async function textOf(incoming: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of incoming) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks).toString('utf8')
}
