import { BffError, type RequestOptions, request } from '../../client/bff-client.ts'
import type { Call } from './requests.ts'

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

/** Sends one request and never throws. It does not wait for `Retry-After`: this page shows the wait itself. */
export async function exchange({ path, ...call }: Call, headers: Record<string, string>): Promise<Exchange> {
  const started = performance.now()
  const options: RequestOptions = { ...call, headers, waitMs: 0 }
  try {
    const response = await request(path, options)
    const text = await response.text()
    const type = (response.headers.get('content-type') ?? '').split(';', 1)[0]!.trim()
    return { status: response.status, type, text, duration: performance.now() - started, error: null }
  } catch (cause) {
    const error = cause instanceof BffError ? cause : new BffError('unreachable')
    const { status, body } = error
    return { status, type: '', text: body, duration: performance.now() - started, error }
  }
}

/** Whether the same read may succeed later without anybody doing anything. */
export function isPassing({ status }: Pick<BffError, 'status'>): boolean {
  return status === 0 || status === 429 || status >= 502
}
