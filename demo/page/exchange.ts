import { BffError, type RequestOptions, request } from '../../client/bff-client.ts'
import type { Call, Sent } from './requests.ts'

/** One request of this page and its outcome, for display. A page that only needs the data calls `flux()`. */
export interface Exchange {
  /** 0: no response. */
  status: number
  /** Media type without parameters. */
  type: string
  text: string
  /** In milliseconds. */
  duration: number
  error: BffError | null
}

/**
 * Sends one request and never throws. It waits for `Retry-After` up to `waitMs`: by default not at all, since this page
 * shows the wait itself.
 */
export async function exchange(call: Call, sent: Sent, waitMs = 0): Promise<Exchange> {
  const started = performance.now()
  const outcome = await send(call, { headers: sent.headers, waitMs })
  sent.arrived(outcome.status)
  return { ...outcome, duration: performance.now() - started }
}

async function send({ path, ...call }: Call, options: RequestOptions): Promise<Omit<Exchange, 'duration'>> {
  try {
    const response = await request(path, { ...call, ...options })
    const text = await response.text()
    const type = (response.headers.get('content-type') ?? '').split(';', 1)[0]!.trim()
    return { status: response.status, type, text, error: null }
  } catch (cause) {
    const error = cause instanceof BffError ? cause : new BffError('unreachable')
    return { status: error.status, type: '', text: error.body, error }
  }
}

/** Whether the same read may succeed later without anybody doing anything. */
export function isPassing({ status }: Pick<BffError, 'status'>): boolean {
  return status === 0 || status === 429 || status >= 502
}
