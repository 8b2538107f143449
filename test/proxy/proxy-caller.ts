import type { Test } from 'tap'
import { signedIn } from '../helpers/shared.ts'
import { ask, OWN, problemOf, type Question, type WireAnswer } from '../http/wire.ts'

export type Header = readonly [name: string, value: string]

export const JSON_TYPE: Header = ['Content-Type', 'application/json']

/** A page of a signed-in browser, and the requests that reach the platform because of it. */
export async function proxyCaller(...system: Parameters<typeof signedIn>) {
  const { sandbox, bff, port, browser, cookie } = await signedIn(...system)
  const send = (question: Question): Promise<WireAnswer> =>
    ask(port, { ...question, headers: [OWN, cookie, ...(question.headers ?? [JSON_TYPE])] })
  return {
    ...{ sandbox, bff, port, browser, cookie, send },
    get: (target: string, ...headers: Header[]) => send({ target, headers }),
    put: (body: string, target = '/site/42') => send({ method: 'PUT', target, body }),
    post: (body: string, target = '/site') => send({ method: 'POST', target, body }),
    /** The one request that reached the platform since the last call. */
    sent() {
      const entries = sandbox.journal.entries()
      sandbox.journal.clear()
      if (entries.length !== 1) throw new Error(`${entries.length} requests went upstream`)
      const { kind, method, url, query, headers, body } = entries[0]!
      return {
        kind,
        method,
        url,
        query,
        type: headers['content-type'],
        accept: headers.accept,
        body: body ?? '',
      }
    },
    /** Asserts that this response is a 400 whose detail names this, and that nothing was sent. */
    refused(t: Test, answer: WireAnswer, names: RegExp, what: string) {
      const seen = { ...problemOf(answer), status: answer.status, sent: sandbox.journal.entries().length }
      t.match(seen, { status: 400, code: 'invalid_request', detail: names, sent: 0 }, what)
    },
  }
}
