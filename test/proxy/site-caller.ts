import type { Test } from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { ask, OWN, portOf, type Question, type WireAnswer } from '../http/wire.ts'

export const JSON_TYPE = ['Content-Type', 'application/json'] as const

/** A signed-in browser that calls UpdateSite, and the requests that reach the resource server. */
export async function siteCaller(t: Test, env: Record<string, string> = {}) {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, env)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.journal.clear()
  const cookie = ['Cookie', `session=${browser.cookies.get('session')!.value}`] as const
  const send = (question: Question): Promise<WireAnswer> =>
    ask(portOf(bff), { ...question, headers: [OWN, cookie, ...(question.headers ?? [JSON_TYPE])] })
  return {
    sandbox,
    send,
    put: (body: string, target = '/site/42') => send({ method: 'PUT', target, body }),
    post: (body: string, target = '/site') => send({ method: 'POST', target, body }),
    /** The one request that reached the resource server since the last call. */
    sent() {
      const entries = sandbox.journal.entries()
      sandbox.journal.clear()
      t.equal(entries.length, 1, 'one request goes upstream')
      const { method, url, headers, body } = entries[0]!
      return {
        method,
        url,
        type: headers['content-type'],
        accept: headers.accept,
        body: JSON.parse(body ?? 'null') as unknown,
      }
    },
  }
}
