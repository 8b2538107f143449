// `createBrowser`: an HTTP client with the cookies and Fetch Metadata of a browser, and checks of its responses.

import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { Test } from 'tap'
import { requireDocumented } from './documented.ts'
import { portOfUrl } from './ports.ts'
import { PATIENCE_MS } from './wait.ts'

export interface Answer {
  status: number
  headers: Record<string, string | string[] | undefined>
  /** Each `Set-Cookie` line. */
  setCookies: string[]
  text: string
  json: () => Record<string, unknown>
}

export interface RequestOptions {
  method?: string
  headers?: Record<string, string>
  body?: string | Buffer
  /** The origin of the navigation: 'cross-site' omits SameSite=Strict cookies. Default 'same-site'. */
  from?: 'same-site' | 'cross-site'
}

interface Cookie {
  value: string
  strict: boolean
}

/** Where a browser finds its https origin. */
export interface Via {
  /** On 127.0.0.1. */
  readonly port: number
  /** The certificate to trust, in PEM. Without one it is reached by plain HTTP, as behind a proxy that ends TLS. */
  readonly ca?: string
  /** The address that the browser comes from. */
  readonly localAddress?: string
}

export type Browser = ReturnType<typeof createBrowser>

/** An HTTP client that looks like a browser: cookies and Fetch Metadata. It does not follow redirects. `via`: the server of an https `publicUrl`. */
export function createBrowser(publicUrl: string, via: Via | null = null) {
  const cookies = new Map<string, Cookie>()

  async function send(
    url: string,
    options: RequestOptions,
    metadata: Record<string, string>,
  ): Promise<Answer> {
    const { method = 'GET', headers = {}, body, from = 'same-site' } = options
    const target = new URL(url, publicUrl)
    const own = target.origin === publicUrl
    const sent = own ? [...cookies].filter(([, cookie]) => from === 'same-site' || !cookie.strict) : []
    const answer = await exchange(
      target,
      method,
      {
        ...metadata,
        ...(sent.length === 0 ? {} : { cookie: cookieHeader({ cookies: sent }) }),
        ...headers,
      },
      body,
      own ? via : null,
    )
    if (own) for (const line of answer.setCookies) keep(line)
    const { status, headers: fields, text } = answer
    const header = (name: string) => (fields[name] === undefined ? undefined : String(fields[name]))
    const port = own && via !== null ? via.port : portOfUrl(target)
    requireDocumented(port, { method, target: target.pathname, status, header, body: text })
    return answer
  }

  function keep(line: string): void {
    const [pair = '', ...attributes] = line.split(';').map((part) => part.trim())
    const at = pair.indexOf('=')
    const lower = attributes.map((attribute) => attribute.toLowerCase())
    if (lower.includes('max-age=0')) cookies.delete(pair.slice(0, at))
    else
      cookies.set(pair.slice(0, at), { value: pair.slice(at + 1), strict: lower.includes('samesite=strict') })
  }

  return {
    cookies,
    fetch: (url: string, options: RequestOptions = {}) =>
      send(url, options, {
        'sec-fetch-site': 'same-origin',
        'sec-fetch-mode': 'cors',
        'sec-fetch-dest': 'empty',
      }),
    /** A top-level navigation. */
    navigate: (url: string, options: RequestOptions = {}) =>
      send(url, options, {
        'sec-fetch-site': options.from === 'cross-site' ? 'cross-site' : 'none',
        'sec-fetch-mode': 'navigate',
        'sec-fetch-dest': 'document',
        accept: 'text/html,application/xhtml+xml,*/*;q=0.8',
      }),
  }
}

/** The `Cookie` field of a request that carries all cookies of a browser. */
export function cookieHeader({ cookies }: { cookies: Iterable<[string, Cookie]> }): string {
  return [...cookies].map(([name, { value }]) => `${name}=${value}`).join('; ')
}

function exchange(
  url: URL,
  method: string,
  headers: Record<string, string>,
  body: string | Buffer | undefined,
  via: Via | null,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    // The servers are called `localhost` but listen only on the IPv4 loopback.
    const host = url.hostname === 'localhost' ? '127.0.0.1' : url.hostname
    const send = via?.ca === undefined ? httpRequest : httpsRequest
    const request = send(
      {
        ...(via === null
          ? { host, port: url.port }
          : { ...via, host: '127.0.0.1', servername: url.hostname }),
        path: url.pathname + url.search,
        method,
        headers: { host: url.host, ...headers },
        agent: false,
      },
      (response) => {
        const chunks: Buffer[] = []
        response.on('data', (chunk: Buffer) => chunks.push(chunk))
        response.on('error', reject)
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString('utf8')
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            setCookies: response.headers['set-cookie'] ?? [],
            text,
            json: () => JSON.parse(text) as Record<string, unknown>,
          })
        })
      },
    )
    request.setTimeout(PATIENCE_MS, () => request.destroy(new Error(`no response within ${PATIENCE_MS} ms`)))
    request.on('error', reject)
    request.end(body)
  })
}

/** Asserts that a response is a problem (RFC 9457) with this status and code. */
export function isProblem(t: Test, answer: Answer, status: number, code: string, what: string): void {
  t.equal(answer.status, status, what)
  t.equal(answer.json().code, code, what)
}
