// Constant calls while servers are restarted: kept and new connections, reads and updates.

import { Agent, request as httpRequest, type RequestOptions } from 'node:http'
import { request as httpsRequest, Agent as TlsAgent } from 'node:https'
import type { Teardown } from './child.ts'
import { elapsed } from './wait.ts'

/** Where a call goes, and what it brings. */
interface Target {
  readonly url: string
  /** Among them the session cookie. */
  readonly headers: Record<string, string>
  /** The certificate to trust and the name to ask for, if the URL is https. */
  readonly tls?: { readonly ca: string; readonly servername: string }
}

interface Call {
  readonly method: 'GET' | 'PUT' | 'POST'
  readonly path: string
  readonly body?: string
}

const READ: Call = { method: 'GET', path: '/flux/temperature' }
const CALLS: readonly Call[] = [
  READ,
  { method: 'PUT', path: '/site/1', body: '{"name":"A"}' },
  READ,
  { method: 'POST', path: '/site', body: '{"siteID":1,"name":"A"}' },
]

/** The status of one call, with what an error says: a proxy has its own words. The code of the failure if the response is incomplete. */
function call(
  { url, headers, tls }: Target,
  { method, path, body }: Call,
  agent?: Agent,
): Promise<number | string> {
  const all = body === undefined ? headers : { ...headers, 'content-type': 'application/json' }
  const options: RequestOptions = { ...tls, method, headers: all, agent: agent ?? false }
  return new Promise((resolve) => {
    const send = tls === undefined ? httpRequest : httpsRequest
    send(`${url}${path}`, options, (response) => {
      const { statusCode: status = 0 } = response
      let said = ''
      response.setEncoding('utf8').on('data', (text) => (said += status < 400 ? '' : text))
      response.once('close', () => {
        if (!response.complete) resolve('cut off')
        else resolve(status < 400 ? status : `${status} ${said.replace(/\s+/g, ' ').slice(0, 200)}`)
      })
    })
      .on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
      .end(body)
  })
}

/** Of each client, after each call: of the cores only a part, because other tests run beside this one. */
const PAUSE_MS = 40

/**
 * Calls until `end()`, which returns how often each status, or code of a failure, came. `pick`: for each call.
 * `more(count)` resolves when so many further calls have ended. Clients with an even number keep one connection,
 * the others open new ones.
 */
export function startLoad(t: Teardown, pick: (client: number) => Target, clients = 6) {
  const counts = new Map<number | string, number>()
  const waits = new Set<{ left: number; resolve: () => void }>()
  let over = false
  const run = async (client: number): Promise<void> => {
    const options = { keepAlive: true, maxSockets: 1 }
    const isSecure = pick(client).tls !== undefined
    const agent = client % 2 === 1 ? undefined : isSecure ? new TlsAgent(options) : new Agent(options)
    t.teardown(() => agent?.destroy())
    for (let turn = client; !over; turn += 1) {
      const status = await call(pick(client), CALLS[turn % CALLS.length]!, agent)
      counts.set(status, (counts.get(status) ?? 0) + 1)
      for (const wait of waits) {
        wait.left -= 1
        if (wait.left > 0) continue
        waits.delete(wait)
        wait.resolve()
      }
      await elapsed(PAUSE_MS)
    }
  }
  const all = Array.from({ length: clients }, (_, client) => run(client))
  return {
    more: (count: number) => new Promise<void>((resolve) => waits.add({ left: count, resolve })),
    async end(): Promise<Map<number | string, number>> {
      over = true
      await Promise.all(all)
      return counts
    },
  }
}
