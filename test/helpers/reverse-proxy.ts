// A reverse proxy in front of the server.

import { createHash, X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type ServerResponse,
} from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { Socket } from 'node:net'
import { createCertificate } from './certificate.ts'
import type { Teardown } from './child.ts'
import { requireDocumented } from './documented.ts'
import { listenOnLoopback } from './ports.ts'
import { makeFolder } from './watchdog.ts'

/** One request and its response, as sent over the network. */
export interface Passed {
  readonly method: string
  /** The whole address. */
  readonly url: string
  readonly path: string
  readonly requestHeaders: IncomingHttpHeaders
  readonly status: number
  /** Alternating names and values. */
  readonly headers: readonly string[]
  readonly body: string
}

export type ReverseProxy = Awaited<ReturnType<typeof startReverseProxy>>
export type TlsReverseProxy = Awaited<ReturnType<typeof startTlsReverseProxy>>

/** A reverse proxy without TLS, on a port of `localhost`. */
export async function startReverseProxy(t: Teardown) {
  const relay = createRelay('http')
  const server = createServer(relay.handle)
  const port = await listenOnLoopback(t, server)
  const publicUrl = `http://localhost:${port}`
  return { publicUrl, ...relay }
}

/**
 * A reverse proxy that ends TLS for `https://<host>`, with a certificate of its own. Browsers reach it as
 * their proxy, so that any host name leads here, at the port that https has, and none is looked up.
 */
export async function startTlsReverseProxy(t: Teardown, host: string) {
  const { keyFile, certFile } = await createCertificate(makeFolder('front'))
  const relay = createRelay('https')
  const hosts = new Map([[host, relay.handle]])
  const cert = await readFile(certFile)
  const publicKey = new X509Certificate(cert).publicKey.export({ type: 'spki', format: 'der' })
  const tls = createTlsServer({ key: await readFile(keyFile), cert }, (incoming, response) => {
    const listener = hosts.get(incoming.headers.host ?? '')
    if (listener === undefined) response.writeHead(421).end()
    else listener(incoming, response)
  })
  const server = createServer((_request, response) => response.writeHead(501).end())
  server.on('connect', (_request, socket: Socket) => {
    socket.on('error', () => {})
    socket.write('HTTP/1.1 200 Connection established\r\n\r\n')
    tls.emit('connection', socket)
  })
  const port = await listenOnLoopback(t, server)
  return {
    publicUrl: `https://${host}`,
    ...relay,
    /** SHA-256 of the public key of its certificate, in base64. */
    publicKeyHash: createHash('sha256').update(publicKey).digest('base64'),
    /** The proxy setting of the browser. It handles every https host and bypasses 127.0.0.1. */
    proxy: { server: `http://127.0.0.1:${port}`, bypass: '127.0.0.1' },
    /** Serves another https host, unrelated to the server. */
    addHost(name: string, listener: (request: IncomingMessage, response: ServerResponse) => void): void {
      hosts.set(name, listener)
    },
  }
}

const HOP_BY_HOP = new Set(['connection', 'keep-alive'])

function createRelay(scheme: 'http' | 'https') {
  const passed: Passed[] = []
  let ports: readonly number[] = []
  let turn = 0

  function handle(incoming: IncomingMessage, response: ServerResponse): void {
    const { method = '', url: path = '', rawHeaders, headers: requestHeaders } = incoming
    const serverPort = ports[turn++ % ports.length] ?? 0
    const forwarded = ['X-Forwarded-For', incoming.socket.remoteAddress ?? '', 'X-Forwarded-Proto', scheme]
    const headers = [...endToEnd(rawHeaders), ...forwarded]
    const outgoing = request(
      { host: '127.0.0.1', port: serverPort, method, path, headers, agent: false },
      (answer) => {
        const kept = endToEnd(answer.rawHeaders)
        const status = answer.statusCode ?? 0
        const chunks: Buffer[] = []
        response.writeHead(status, kept)
        answer.on('data', (chunk: Buffer) => chunks.push(chunk))
        answer.on('end', () => {
          const body = Buffer.concat(chunks).toString('utf8')
          const url = `${scheme}://${requestHeaders.host}${path}`
          passed.push({ method, url, path, requestHeaders, status, headers: kept, body })
          const header = (name: string) => answer.headers[name]?.toString()
          requireDocumented(serverPort, { method, target: path, status, header, body })
        })
        answer.on('error', () => response.destroy())
        answer.pipe(response)
      },
    )
    outgoing.on('error', () => response.destroy())
    response.on('close', () => outgoing.destroy())
    incoming.pipe(outgoing)
  }

  return {
    /** Complete exchanges, oldest first. */
    passed,
    handle,
    /** Sets the ports of the server on 127.0.0.1: its replicas take turns. */
    forwardTo(...next: number[]): void {
      ports = next
    },
  }
}

function endToEnd(rawHeaders: readonly string[]): string[] {
  return rawHeaders.filter((_text, at) => !HOP_BY_HOP.has(rawHeaders[at - (at % 2)]!.toLowerCase()))
}
