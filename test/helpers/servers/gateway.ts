import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import { buffer, text } from 'node:stream/consumers'
import type { Teardown } from '../child.ts'
import { listenOnLoopback } from '../ports.ts'

/** A request to the token or the revocation endpoint, and the server's answer. */
export interface Exchange {
  readonly path: string
  readonly form: Readonly<Record<string, string>>
  readonly status: number
  /** The members of a JSON answer. */
  readonly answer: Readonly<Record<string, unknown>>
}

interface Gate {
  readonly arrived: Promise<void>
  release(): void
}

export type Gateway = Awaited<ReturnType<typeof startGateway>>

/** What stands between the product and the token endpoint of a server: it notes each exchange, and can hold an answer. */
export async function startGateway(t: Teardown, origin: string) {
  const exchanges: Exchange[] = []
  let gate: { arrive: () => void; released: Promise<void> } | null = null

  async function handle(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(incoming)
    const form = Object.fromEntries(new URLSearchParams(body))
    const answer = await forward(incoming, body)
    const content = await buffer(answer)
    const { statusCode: status = 0 } = answer
    exchanges.push({
      path: incoming.url ?? '',
      form,
      status,
      answer: membersOf(content.toString('utf8')),
    })
    const held = form.grant_type === 'refresh_token' ? gate : null
    if (held !== null) {
      gate = null
      held.arrive()
      await held.released
    }
    response.writeHead(status, withoutHops(answer.rawHeaders)).end(content)
  }

  function forward({ method, url, rawHeaders }: IncomingMessage, body: string): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const headers = [...withoutHops(rawHeaders), 'Host', new URL(origin).host]
      const outgoing = request(`${origin}${url}`, { method, headers, agent: false, setHost: false }, resolve)
      outgoing.on('error', reject)
      outgoing.end(body)
    })
  }

  function withoutHops(rawHeaders: readonly string[]): string[] {
    const own = /^(?:connection|keep-alive|transfer-encoding|host)$/i
    return rawHeaders.filter((_text, at) => !own.test(rawHeaders[at - (at % 2)]!))
  }

  const server = createServer((incoming, response) => {
    // Without an answer of the server there is none here.
    handle(incoming, response).catch(() => incoming.socket.destroy())
  })
  const port = await listenOnLoopback(t, server)
  return {
    /** The address here for an address of the server. */
    at: (url: string) => url.replace(origin, `http://127.0.0.1:${port}`),
    /** Oldest first. */
    exchanges,
    refreshes: () => exchanges.filter(({ form }) => form.grant_type === 'refresh_token'),
    /** Holds the answer to the next refresh, after the server has given it. */
    hold(): Gate {
      let arrive = () => {}
      let release = () => {}
      const arrived = new Promise<void>((resolve) => {
        arrive = resolve
      })
      const released = new Promise<void>((resolve) => {
        release = resolve
      })
      gate = { arrive, released }
      return { arrived, release }
    },
  }
}

function membersOf(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>
  } catch {
    return {}
  }
}
