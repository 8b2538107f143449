import { createServer } from 'node:http'
import type { Teardown } from '../child.ts'
import { listenOnLoopback } from '../ports.ts'

/** A resource server that asks the authorization server about each token, and refuses in its words. */
export async function startResource(t: Teardown, guard: (token: string) => Promise<Response>) {
  const seen: string[] = []
  const expired = new Set<string>()
  const server = createServer(async (incoming, response) => {
    const token = /^Bearer (.+)$/.exec(incoming.headers.authorization ?? '')?.[1] ?? ''
    seen.push(token)
    if (expired.has(token)) {
      response.writeHead(401, { 'www-authenticate': 'Bearer error="invalid_token"' }).end()
      return
    }
    const verdict = await guard(token).catch(() => null)
    if (verdict === null) return response.destroy()
    const content = Buffer.from(await verdict.arrayBuffer())
    if (verdict.ok) {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"values":[]}')
      return
    }
    const kept = ['content-type', 'www-authenticate'].flatMap((name) => {
      const value = verdict.headers.get(name)
      return value === null ? [] : [[name, value] as const]
    })
    response.writeHead(verdict.status, Object.fromEntries(kept)).end(content)
  })
  return {
    baseUrl: `http://127.0.0.1:${await listenOnLoopback(t, server)}`,
    /** The token of the newest call. */
    bearer: () => seen.at(-1) ?? '',
    /** Refuses all tokens that it has seen so far, as if they had expired. */
    expire(): void {
      for (const token of seen) expired.add(token)
    },
  }
}
