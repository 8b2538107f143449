import http from 'node:http'
import net, { type Socket } from 'node:net'
import { buffer } from 'node:stream/consumers'
import type { Call, OutgoingRequest } from '../../src/proxy/outgoing-request.ts'
import {
  createResourceClient,
  type Outcome,
  type ResourceClientOptions,
} from '../../src/proxy/resource-client.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { until } from '../helpers/wait.ts'

interface Teardown {
  teardown(handler: () => unknown): unknown
}

/** One request as the resource server received it, byte for byte. */
export interface Received {
  text: string
  /** Header lines, in order. */
  lines: string[]
  path: string
  body: string
  socket: Socket
  /** How many requests came before it on the same connection. */
  position: number
}

/** A resource server on a bare socket: it sends exactly what `answer` writes. */
export async function rawUpstream(t: Teardown, answer: (socket: Socket, request: Received) => void) {
  const received: Received[] = []
  const sockets: Socket[] = []
  const server = net.createServer((socket) => {
    sockets.push(socket)
    socket.on('error', () => {})
    let text = ''
    let position = 0
    socket.on('data', (data) => {
      text += data.toString('latin1')
      for (;;) {
        const end = text.indexOf('\r\n\r\n')
        if (end === -1) return
        const [start = '', ...lines] = text.slice(0, end).split('\r\n')
        const length = Number(/^content-length: (\d+)$/im.exec(lines.join('\n'))?.[1] ?? 0)
        if (text.length < end + 4 + length) return
        const whole = text.slice(0, end + 4 + length)
        text = text.slice(whole.length)
        const path = start.split(' ')[1] ?? ''
        const request = { text: whole, lines, path, body: whole.slice(end + 4), socket, position: position++ }
        received.push(request)
        answer(socket, request)
      }
    })
  })
  return {
    url: `http://127.0.0.1:${await listenOnLoopback(t, server)}`,
    received,
    sockets,
    /** Of all requests so far. */
    paths: () => received.map(({ path }) => path),
    /** The request of that index, as soon as it is there. */
    async request(index: number) {
      await until('a request upstream', () => received.length > index)
      return received[index]!
    },
  }
}

/** Of a call that may leave however long it has waited. */
export const PROVEN = { isProven: () => true, prove: async () => true }

/** An outgoing request as the routes would make one. */
export function outgoing(change: Partial<OutgoingRequest> = {}): OutgoingRequest {
  return {
    operation: 'GetFlux',
    wac: 'DEMO',
    application: false,
    targetId: '1',
    method: 'GET',
    path: '/x',
    accept: 'application/json',
    contentType: 'application/json',
    body: null,
    uploadLength: null,
    jsonp: false,
    anyType: false,
    ...change,
  }
}

/** A server that forwards each request as it comes, and responds 599 itself if nothing was written. */
export async function bff(
  t: Teardown,
  options: Partial<ResourceClientOptions> & { baseUrl: string },
  change: Partial<Call> = {},
) {
  const resourceClient = createResourceClient({
    // So long that a test that waited for it would not end.
    timeoutMs: 3_600_000,
    tokenIn: 'header',
    secure: false,
    ...options,
  })
  const outcomes: Outcome[] = []
  let sent = 0
  const server = http.createServer(async (request, response) => {
    const method = request.method as OutgoingRequest['method']
    const body = method === 'GET' || method === 'HEAD' ? null : await buffer(request)
    const call: Call = {
      outgoing: outgoing({ method, path: request.url ?? '/', body }),
      request,
      response,
      hijack() {},
      authorization: 'Bearer the-token',
      holder: String(request.headers['x-holder']),
      requestId: 'req-1',
      traceparent: null,
      ...PROVEN,
      ...change,
    }
    const over = new Promise<Outcome>((resolve) => resourceClient.send(call, resolve))
    sent += 1
    const outcome = await over
    outcomes.push(outcome)
    if (response.headersSent || response.destroyed) return
    response.statusCode = 599
    response.end(outcome.kind)
  })
  t.teardown(() => resourceClient.close())
  return {
    port: await listenOnLoopback(t, server),
    close: () => resourceClient.close(),
    /** Resolves when so many calls have been handed to the resource server. */
    sends: (count: number) => until('calls', () => sent >= count),
    /** The outcome of the call of that index, as soon as it is there. */
    async outcome(index: number) {
      await until('an outcome', () => outcomes.length > index)
      return outcomes[index]!
    },
  }
}

interface RawAnswer {
  status: number
  /** Lower-case names. */
  headers: Record<string, string>
  /** The bytes after the head, framing included, one character a byte. */
  raw: string
  /** Set where the connection failed rather than ended. */
  error: string | null
}

/** A browser on a bare socket. Lines are joined by CRLF; the head is closed here. */
export function rawBrowser(t: Teardown, port: number, lines: string[], body = '') {
  const socket = net.connect(port, '127.0.0.1')
  let text = ''
  let error: string | null = null
  socket.on('connect', () => socket.write(`${lines.join('\r\n')}\r\n\r\n${body}`, 'latin1'))
  socket.on('data', (data) => {
    text += data.toString('latin1')
  })
  socket.on('error', (failure: NodeJS.ErrnoException) => {
    error = failure.code ?? failure.message
  })
  t.teardown(() => socket.destroy())
  return {
    socket,
    /** Everything received until the connection was over. */
    answer: new Promise<RawAnswer>((resolve) => {
      socket.on('close', () => resolve(parse(text, error)))
    }),
    /** Whether the response has this status, as soon as its head is there. */
    async begins(status: number): Promise<boolean> {
      await until('a head', () => text.includes('\r\n\r\n'))
      return parse(text, null).status === status
    },
    /** Resolves once the text received so far contains `part`. */
    sees: (part: string) => until(part, () => text.includes(part)),
  }
}

function parse(text: string, error: string | null): RawAnswer {
  const end = text.indexOf('\r\n\r\n')
  const [start = '', ...lines] = (end === -1 ? text : text.slice(0, end)).split('\r\n')
  const headers: Record<string, string> = {}
  for (const line of lines) {
    const colon = line.indexOf(':')
    const name = line.slice(0, colon).toLowerCase()
    const value = line.slice(colon + 1).trim()
    headers[name] = name in headers ? `${headers[name]} AND ${value}` : value
  }
  return { status: Number(start.split(' ')[1]), headers, raw: end === -1 ? '' : text.slice(end + 4), error }
}

/** A browser that sends one GET with `Connection: close`. */
export function browse(t: Teardown, port: number, path = '/x', ...lines: string[]) {
  return rawBrowser(t, port, [`GET ${path} HTTP/1.1`, 'Host: bff.test', 'Connection: close', ...lines])
}

/** One GET, to its end. */
export function get(...request: Parameters<typeof browse>): Promise<RawAnswer> {
  return browse(...request).answer
}

/** One write of `{}`, to its end. */
export function write(t: Teardown, port: number, method = 'PUT', ...lines: string[]): Promise<RawAnswer> {
  const head = [`${method} /x HTTP/1.1`, 'Host: bff.test', 'Connection: close', 'Content-Length: 2', ...lines]
  return rawBrowser(t, port, head, '{}').answer
}

/** A resource server that writes this to each request, and a server that forwards to it. */
export async function start(
  t: Teardown,
  answer: string | Parameters<typeof rawUpstream>[1] = OK,
  options: Partial<ResourceClientOptions> = {},
  change: Partial<Call> = {},
) {
  const write = (socket: Socket) => void socket.write(String(answer), 'latin1')
  const upstream = await rawUpstream(t, typeof answer === 'string' ? write : answer)
  return { upstream, ...(await bff(t, { baseUrl: upstream.url, ...options }, change)) }
}

/** One response of the resource server, as its browser gets it. */
export async function relayed(t: Teardown, text: string) {
  const { upstream, port, outcome } = await start(t, text)
  const answer = await get(t, port)
  return { answer, outcome: await outcome(0), upstream }
}

/** Resolves when the connection is over, in whatever way. */
export function closed(socket: Socket): Promise<void> {
  if (socket.closed) return Promise.resolve()
  return new Promise((resolve) => socket.once('close', () => resolve()))
}

/** A whole response with a length. */
export function answerText(status: string, lines: string[], body = ''): string {
  return [
    `HTTP/1.1 ${status}`,
    ...lines,
    `Content-Length: ${Buffer.byteLength(body, 'latin1')}`,
    '',
    body,
  ].join('\r\n')
}

/** A valid CSV response with these further header lines. */
export const csv = (...lines: string[]): string =>
  answerText('200 OK', ['Content-Type: text/csv', ...lines], 'a')

/** A small valid JSON response. */
export const OK = answerText('200 OK', ['Content-Type: application/json'], '{"id":9007199254740993}')
