import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Logger } from '../log.ts'
import type { Readiness } from './readiness.ts'

interface OpsOptions {
  readiness: Pick<Readiness, 'missing' | 'warnings'>
  metrics: { text(): Promise<string>; readonly contentType: string }
  log: Logger
}

interface OpsServer {
  /** Resolves with the URL of the server. Rejects where it cannot listen. */
  listen(at: { host: string; port: number }): Promise<string>
  close(): Promise<void>
}

interface Body {
  readonly status: number
  readonly type: string
  readonly text: string
}

/**
 * Health and metrics on a server of their own, so that browsers cannot reach them. `/livez` depends on nothing;
 * `/readyz` says what is missing.
 */
export function createOpsServer({ readiness, metrics, log }: OpsOptions): OpsServer {
  const routes = new Map<string, () => Body | Promise<Body>>([
    ['/livez', () => json(200, { status: 'alive' })],
    [
      '/readyz',
      async () => {
        const missing = await readiness.missing()
        const isReady = missing.length === 0
        const warnings = readiness.warnings()
        return json(isReady ? 200 : 503, {
          status: isReady ? 'ready' : 'not ready',
          missing,
          ...(warnings.length === 0 ? {} : { warnings }),
        })
      },
    ],
    ['/metrics', async () => ({ status: 200, type: metrics.contentType, text: await metrics.text() })],
  ])

  async function respond({ method, url = '' }: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = url.split('?', 1)[0]!
    const route = method === 'GET' || method === 'HEAD' ? routes.get(path) : undefined
    const { status, type, text } =
      route === undefined ? json(404, { status: 'not found' }) : await bodyOf(route, path)
    response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(text) }).end(text)
  }

  /** Where the route fails, a 500: nobody would catch a rejection, and it would end the process. */
  async function bodyOf(route: () => Body | Promise<Body>, path: string): Promise<Body> {
    try {
      return await route()
    } catch (error) {
      log.error(
        { event: 'ops.failed', path, err: error },
        'a route of OPS_PORT failed: report it with its stack',
      )
      return json(500, { status: 'failed' })
    }
  }

  const server = createServer((request, response) => void respond(request, response))

  return {
    async listen({ host, port }) {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject).listen(port, host, () => {
          server.off('error', reject)
          resolve()
        })
      })
      return urlOf(server)
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function json(status: number, body: object): Body {
  return { status, type: 'application/json; charset=utf-8', text: JSON.stringify(body) }
}

function urlOf(server: Server): string {
  const { address, port, family } = server.address() as AddressInfo
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`
}
