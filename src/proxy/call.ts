import type { IncomingMessage, ServerResponse } from 'node:http'

/** One call to the resource server on behalf of one request of a browser. */
export interface Call {
  /** For its headers and its end; its body is not read. */
  request: IncomingMessage
  response: ServerResponse
  method: 'GET' | 'HEAD' | 'PUT' | 'POST'
  /** Begins with `/`, built from validated parts, with its query; appended to the path of `baseUrl`. */
  path: string
  accept: string
  contentType: string
  body: Buffer | null
  /** A script type is allowed in the answer. */
  jsonp: boolean
  /** A ready `Bearer …` value, also where the token goes into the query; null sends none. */
  authorization: string | null
  requestId: string
}

/** Only `finished`, `client_gone` and `cut` may have written to the response; all else left it untouched. */
export type Outcome =
  /** The answer was relayed and handed to the browser's connection; `bytes` of body. */
  | { kind: 'finished'; status: number; bytes: number }
  /** The browser went away, or stopped reading; the call upstream was ended. */
  | { kind: 'client_gone' }
  /** The answer broke off half-way, and the browser's connection with it. */
  | { kind: 'cut'; status: number }
  /** `named`: the answer gives `invalid_token` as its error code. */
  | { kind: 'invalid_token'; named: boolean; status: number }
  /** A status of 400 or more whose body may not be relayed. */
  | { kind: 'upstream_error'; status: number; retryAfter: string | null }
  /** A redirect, a page, a script, a body without a type, or no proper HTTP. `reason` is for the log. */
  | { kind: 'unusable'; reason: string }
  /** No connection, or lost before an answer. */
  | { kind: 'unavailable'; cause: unknown }
  | { kind: 'timeout' }
