// A collector of traces: an HTTP(S) server that keeps what a server exports by OTLP.

import { readFileSync } from 'node:fs'
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { Certificate } from '../helpers/certificate.ts'
import type { Teardown } from '../helpers/child.ts'
import { listenOnLoopback } from '../helpers/ports.ts'

/** A span as OTLP's JSON form has it, with its attributes as one object. */
export interface ReceivedSpan {
  traceId: string
  spanId: string
  parentSpanId?: string
  name: string
  kind: number
  attributes: Record<string, unknown>
  status: { code: number }
  links?: { traceId: string; spanId: string }[]
  /** Of the process that exported it. */
  resource: Record<string, unknown>
}

interface Attribute {
  key: string
  value: Record<string, unknown>
}

interface ExportRequest {
  resourceSpans: {
    resource: { attributes: Attribute[] }
    scopeSpans: { spans: (Omit<ReceivedSpan, 'attributes' | 'resource'> & { attributes: Attribute[] })[] }[]
  }[]
}

export interface Collector {
  readonly url: string
  /** Each export: path, header and body. */
  readonly exports: { path: string; headers: IncomingHttpHeaders; body: Buffer }[]
  /** `hang`: takes requests and answers none. */
  mode: 'ok' | 'hang'
  /** Requests without an answer so far. */
  hung: number
  /** All spans so far. Only for exports in JSON. */
  spans(): ReceivedSpan[]
}

/** Starts a collector on a free port; with a certificate it speaks https. */
export async function startCollector(t: Teardown, certificate?: Certificate): Promise<Collector> {
  const collector: Collector = {
    url: '',
    exports: [],
    mode: 'ok',
    hung: 0,
    spans: () =>
      collector.exports.flatMap(({ body }) => spansOf(JSON.parse(body.toString()) as ExportRequest)),
  }
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    if (collector.mode === 'hang') {
      collector.hung += 1
      return
    }
    collector.exports.push({ path: request.url ?? '', headers: request.headers, body: Buffer.concat(chunks) })
    response.end()
  }
  const listener = (request: IncomingMessage, response: ServerResponse): void =>
    void answer(request, response).catch(() => {})
  const server =
    certificate === undefined
      ? createServer(listener)
      : createSecureServer(
          { key: readFileSync(certificate.keyFile), cert: readFileSync(certificate.certFile) },
          listener,
        )
  const port = await listenOnLoopback(t, server)
  const scheme = certificate === undefined ? 'http' : 'https'
  return Object.assign(collector, { url: `${scheme}://127.0.0.1:${port}` })
}

function spansOf({ resourceSpans }: ExportRequest): ReceivedSpan[] {
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map((span) => ({
        ...span,
        attributes: valuesOf(span.attributes),
        resource: valuesOf(resource.attributes),
      })),
    ),
  )
}

function valuesOf(attributes: Attribute[]): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]))
}
