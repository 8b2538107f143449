import type { Filling, Page, Visitor } from './visitor.ts'

/** A real authorization server in a process of its own, with a client for the product. */
export interface RealServer {
  /** Scheme, host and port of its addresses; the paths are those of its profile. */
  readonly origin: string
  /** `CLIENT_ID` and `CLIENT_SECRET`, and what differs from the environment that its profile advises. */
  readonly env: Readonly<Record<string, string>>
  /** Two accounts: one whose access is withdrawn, and one who is not concerned. */
  readonly accounts: readonly [string, string]
  /** What a resource server of it says to a token. */
  guard(token: string): Promise<Response>
  /** Signs in at the page where this address leads. The address of the redirect back; null if the visitor stays there. */
  decide(visitor: Visitor, authorizeUrl: string, decision: Decision): Promise<string | null>
  /** Ends the access of the first account, whose visitor this is. */
  withdraw(visitor: Visitor): Promise<void>
  /** Tokens that it issues from now on live so long. */
  setLife(seconds: number): Promise<void>
}

export interface Decision {
  readonly account: string
  readonly accepts: boolean
}

export const PASSWORD = 'wonderland'
export const CREDENTIALS = { CLIENT_ID: 'the-bff', CLIENT_SECRET: 's3cret-of-the-bff' }

/** A request of a resource server, or of a script, with this token. */
export function withBearer(url: string): RealServer['guard'] {
  return (token) => fetch(url, { headers: { authorization: `Bearer ${token}` } })
}

/** For a server that asks by a page for name and password, and by another for the decision, unless it knows this visitor's. */
export function decideByForms(fill: {
  signIn(account: string): Filling
  choose(accepts: boolean, page: Page): Filling
}): RealServer['decide'] {
  return async (visitor, authorizeUrl, { account, accepts }) => {
    let page = await visitor.go(authorizeUrl)
    if (page.text.includes('name="password"')) page = await visitor.submit(page, fill.signIn(account))
    if (!page.isBack) page = await visitor.submit(page, fill.choose(accepts, page))
    return page.isBack ? page.url : null
  }
}
