import { randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { SYSTEM_CLOCK } from '../../src/clock.ts'
import type { Config } from '../../src/config/config.ts'
import { jsonObject } from '../../src/json.ts'
import { type AuthorizationClient, createAuthorizationClient } from '../../src/oauth/client.ts'
import { redirectUriOf } from '../../src/oauth/redirect-uri.ts'
import type { GrantedTokens, TokenOutcome } from '../../src/oauth/token-response.ts'
import { listenAddress } from '../../src/process/listen.ts'
import type { Secret } from '../../src/secret.ts'
import { objectionIn } from '../objection.ts'
import type { Report } from '../report.ts'
import type { Operator } from './operator.ts'

/** A completed sign-in. */
export interface SignedIn {
  readonly tokens: GrantedTokens
  /** The token response as it came, or null where it is no JSON object. */
  readonly response: Readonly<Record<string, unknown>> | null
  /** What came back of the `state` that was sent. */
  readonly state: 'echoed' | 'absent' | 'other'
  /** `iss` as it came back (RFC 9207); null: it did not. */
  readonly iss: string | null
  /** How long the token request took. */
  readonly tookMs: number
}

/** The outcome of a refresh, and the token response as it came. */
export interface Refreshed {
  readonly outcome: TokenOutcome
  readonly response: SignedIn['response']
}

/** The sign-in of the server, at `PUBLIC_URL` or, where that does not lead here, with a callback that the operator pastes. */
export interface SignIns {
  /** null: no tokens came, and the report says why. Rejects with `Stopped`. */
  signIn(): Promise<SignedIn | null>
  /** A refresh, within the token timeout; with `clientSecret` in place of the client's. Its tokens are hidden. */
  refresh(refreshToken: Secret, clientSecret?: Secret): Promise<Refreshed>
  /** Whether a response of the authorization server had a `Date`. */
  hasDate(): boolean
  readonly authorizationClient: AuthorizationClient
  close(): Promise<void>
}

/** A sign-in that a browser has begun or may begin. */
interface Started {
  /** Part of the printed address. */
  readonly secret: string
  readonly nonce: string
  readonly redirectUri: string
  readonly verifier: string | null
  /** A browser has opened the printed address. */
  opened: boolean
}

const LIVE = '/auth/live'
const COOKIE = 'live'
const SELF_TIMEOUT_MS = 5_000
const OPENED = 'Another browser has opened this address. Stop the doctor and start it again.'

/** Listens at `HOST` and `PORT`. Rejects with the error of the listener, for example EADDRINUSE. */
export async function createSignIns(config: Config, report: Report, operator: Operator): Promise<SignIns> {
  const { publicUrl, oauth, egress } = config
  let lastResponse = ''
  let hasDate = false
  const opened: AuthorizationClient[] = []
  const as = (clientSecret: Secret): AuthorizationClient => {
    const server = createAuthorizationClient({
      oauth: { ...oauth, clientSecret },
      egress,
      concurrency: 1,
      clock: SYSTEM_CLOCK,
      onBody: (body) => {
        lastResponse = body
      },
      onDate: () => {
        hasDate = true
      },
    })
    opened.push(server)
    return server
  }
  const authorizationClient = as(oauth.clientSecret)

  /** The last token response, its tokens hidden from now on; null where it is no JSON object. */
  function readResponse(): SignedIn['response'] {
    const response = jsonObject(lastResponse)
    for (const name of ['access_token', 'refresh_token', 'id_token'])
      if (typeof response?.[name] === 'string') report.hide(response[name])
    return response
  }
  const self = newSecret()
  let started: Started | null = null
  let cameBack = (_query: URLSearchParams): void => {}

  function begin(): Started {
    const begun = newSignIn(config)
    for (const text of [begun.nonce, begun.secret, begun.verifier]) if (text !== null) report.hide(text)
    started = begun
    return begun
  }

  const addressOf = ({ nonce, redirectUri, verifier }: Started): string =>
    authorizationClient.authorizeUrl({ responseType: 'code', redirectUri, state: nonce, verifier })

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '/', publicUrl)
    if (request.method !== 'GET') return refuse(response)
    if (pathname === `${LIVE}/${self}`) return send(response, 200, self)
    if (started === null) return refuse(response)
    const isItsBrowser = (request.headers.cookie ?? '').split(/; */).includes(`${COOKIE}=${started.nonce}`)
    if (pathname === `${LIVE}/${started.secret}`) {
      // Its browser may load it again; anybody else may have read it over a shoulder.
      if (started.opened && !isItsBrowser) return send(response, 503, OPENED)
      started.opened = true
      const secure = publicUrl.startsWith('https:') ? '; Secure' : ''
      response.setHeader(
        'set-cookie',
        `${COOKIE}=${started.nonce}; Path=/auth; HttpOnly; SameSite=Lax${secure}`,
      )
      response.setHeader('location', addressOf(started))
      return send(response, 303, '')
    }
    const isCallback = `${new URL(publicUrl).origin}${pathname}` === started.redirectUri
    if (!isCallback || !isItsBrowser) return refuse(response)
    cameBack(searchParams)
    return send(response, 200, 'The doctor has the sign-in. Go back to the terminal.')
  }

  const server = createServer((request, response) => {
    handle(request, response).catch(() => refuse(response))
  })
  await listen(server, config.listen)
  const leadsHere = await asksItself(`${publicUrl}${LIVE}/${self}`, self)

  async function fromBrowser(): Promise<URLSearchParams> {
    const { secret } = begin()
    const address = `${publicUrl}${LIVE}/${secret}`
    const back = new Promise<URLSearchParams>((resolve) => {
      cameBack = resolve
    })
    report.show('sign-in', address, 'Open this address in a browser and sign in')
    return await operator.unlessStopped(back)
  }

  async function fromOperator(): Promise<URLSearchParams> {
    const { redirectUri } = begin()
    report.show('sign-in', addressOf(started!), 'Open this address in a browser and sign in')
    report.say(
      'Then paste the address that the browser shows, also if the page is an error. It begins with the callback. Press Enter:',
    )
    for (;;) {
      const line = await operator.answer()
      if (line === '') return new URLSearchParams()
      const at = line.indexOf('?')
      if (at > 0 && line.slice(0, at) === redirectUri) return new URLSearchParams(line.slice(at))
      report.say(
        `That address does not begin with ${redirectUri.split('/callback')[0]}/callback. Paste it again:`,
      )
    }
  }

  return {
    authorizationClient,
    async signIn() {
      if (!leadsHere)
        report.say(
          `${publicUrl} does not lead to this process, so the address that your browser ends at must be pasted here.`,
        )
      const query = await (leadsHere ? fromBrowser() : fromOperator())
      const { nonce, redirectUri, verifier } = started!
      // Whoever has the address can begin nothing more with it.
      started = null
      const [code, ...more] = query.getAll('code')
      const error = query.get('error')
      if (code === undefined || more.length > 0 || error !== null) {
        const description = query.get('error_description')
        const words = description === null ? '' : `, "${report.quote(description)}"`
        const objection = objectionIn(query, oauth)
        const why = error === null ? 'there is no code' : `the error ${report.quote(error)}${words}`
        report.add('sign-in', {
          verdict: 'fault',
          message: `the browser came back without a code: ${why}${objection?.isOfTheRequest ? `: ${objection.remedy}` : ''}`,
          setting: objection?.setting ?? null,
        })
        return null
      }
      report.hide(code)
      const sentAt = SYSTEM_CLOCK.monotonic()
      const outcome = await authorizationClient.redeemCode({ redirectUri, code, verifier })
      const tookMs = Math.round(SYSTEM_CLOCK.monotonic() - sentAt)
      const response = readResponse()
      if (outcome.kind !== 'granted') {
        const message = `the token endpoint gave no tokens for the code: ${reasonOf(outcome)}`
        report.add('sign-in', { verdict: 'fault', message })
        return null
      }
      const state = query.get('state')
      const echo = state === null ? 'absent' : state === nonce ? 'echoed' : 'other'
      return { tokens: outcome.tokens, response, state: echo, iss: query.get('iss'), tookMs }
    },
    async refresh(refreshToken, clientSecret) {
      const by = clientSecret === undefined ? authorizationClient : as(clientSecret)
      lastResponse = ''
      const outcome = await by.refresh(refreshToken, {
        sendBefore: SYSTEM_CLOCK.monotonic() + oauth.tokenTimeoutMs,
        signal: AbortSignal.timeout(oauth.tokenTimeoutMs),
      })
      return { outcome, response: readResponse() }
    },
    hasDate: () => hasDate,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
      await Promise.all(opened.map((each) => each.close()))
    },
  }
}

function newSignIn(config: Config): Started {
  const nonce = newSecret()
  const redirectUri = redirectUriOf(config, nonce)
  const verifier = config.oauth.pkce ? randomBytes(32).toString('base64url') : null
  return { secret: newSecret(), nonce, redirectUri, verifier, opened: false }
}

/** Why no tokens came, with the description of the error. */
export function reasonOf({ reason, answer }: Exclude<TokenOutcome, { kind: 'granted' }>): string {
  const description = answer?.description ?? null
  return description === null ? reason : `${reason}, "${description}"`
}

function newSecret(): string {
  return randomBytes(24).toString('base64url')
}

async function listen(server: Server, { host, port }: Config['listen']): Promise<void> {
  const address = await listenAddress(host)
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, address, resolve)
  })
}

/** Whether a request to this address comes to this process. */
async function asksItself(address: string, expected: string): Promise<boolean> {
  try {
    const response = await fetch(address, { signal: AbortSignal.timeout(SELF_TIMEOUT_MS), redirect: 'error' })
    return (await response.text()) === expected
  } catch {
    return false
  }
}

function refuse(response: ServerResponse): void {
  response.setHeader('retry-after', '60')
  send(response, 503, 'The doctor measures the platform here. The server does not run.')
}

function send(response: ServerResponse, status: number, text: string): void {
  if (response.headersSent) return
  response.writeHead(status, {
    'content-type': 'text/plain; charset=utf-8',
    'cache-control': 'no-store',
    'referrer-policy': 'no-referrer',
    connection: 'close',
  })
  response.end(text)
}
