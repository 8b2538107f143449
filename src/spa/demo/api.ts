import { readMembers } from './json.ts'

/** An error body of the server (RFC 9457), or a substitute built from the status. */
export interface ProblemBody {
  status: number
  code: string
  title: string
  detail: string
  requestId: string | null
  loginUrl: string | null
}

export interface Answer {
  status: number
  /** Media type without parameters, empty where there is none. */
  type: string
  text: string
  /** How long the exchange took, in milliseconds. */
  duration: number
  /** The server's clock, milliseconds since 1970, to the second. */
  serverTime: number | null
  problem: ProblemBody | null
}

/** `null`: there was no response, the server is unreachable. */
export type Outcome = Answer | null

export interface Call {
  method: 'GET' | 'POST' | 'PUT'
  path: string
  body?: string
}

const TIMEOUT_MS = 35_000

/** One call to the server on this origin. The browser adds the session cookie; this code never sees a token. */
export async function call({ method, path, body }: Call): Promise<Outcome> {
  const started = performance.now()
  // Browsers send Fetch Metadata to https and to localhost only; elsewhere this header proves the same origin.
  const headers: Record<string, string> = { 'X-CSRF': '1' }
  if (body !== undefined) headers['Content-Type'] = 'application/json'
  try {
    const response = await fetch(path, {
      method,
      headers,
      cache: 'no-store',
      signal: AbortSignal.timeout(TIMEOUT_MS),
      ...(body === undefined ? {} : { body }),
    })
    const text = await response.text()
    const type = (response.headers.get('content-type') ?? '').split(';', 1)[0]!.trim().toLowerCase()
    const date = Date.parse(response.headers.get('date') ?? '')
    return {
      status: response.status,
      type,
      text,
      duration: performance.now() - started,
      serverTime: Number.isNaN(date) ? null : date,
      problem: response.ok ? null : readProblem(response.status, type, text),
    }
  } catch {
    return null
  }
}

function readProblem(status: number, type: string, text: string): ProblemBody {
  const body = type === 'application/problem+json' ? readMembers(text) : {}
  const member = (name: string): string | null => (typeof body[name] === 'string' ? body[name] : null)
  return {
    status,
    code: member('code') ?? 'error',
    title: member('title') ?? `The answer has the status ${status}`,
    detail: member('detail') ?? 'The body of the answer is shown below.',
    requestId: member('requestId'),
    loginUrl: member('loginUrl'),
  }
}
