// The browser's side of the token-handler BFF, without dependencies: import this file, or copy it into your page.
// It needs a browser of 2022 or newer. docs/spa.md explains it. The types are not generated from /openapi.json, so that the
// file is short and stands alone: tests compare them.

export type EndReason = 'logout' | 'idle' | 'absolute' | 'refused' | 'replaced' | 'operator'

/** Times are ISO 8601 in UTC, by the server's clock. `now` is that clock. */
export interface SignedIn {
  authenticated: true
  flow: string
  createdAt: string
  idleExpiresAt: string
  expiresAt: string
  accessTokenExpiresAt: string
  refreshable: boolean
  /** The account code of calls that name none. */
  wac: string | null
  /** Where the server asks the platform for it. */
  user: { id: string; name: string | null } | null
  now: string
  sessionId: string
  /** Whether the session is bound to the device of this browser. */
  bound: boolean
}

/** `ended` is there for an hour after the session of this browser ended, `reason` if the session is bound to another device. */
export interface SignedOut {
  authenticated: false
  loginUrl: string
  reason?: 'device'
  ended?: { reason: EndReason; at: string }
}

export type Session = SignedIn | SignedOut

/** A Site as UpdateSite returns it. `Integer` is `number | bigint` if the call asked for `bigint`. */
export interface Site<Integer = number> {
  wType: string
  id: Integer
  name: string
  description: string
  code: string
  parentInfrastructureID?: Integer | null
  creationDate: string
  updateDate: string
  picture: string
}

/**
 * What UpdateSite can change. The platform does not document what it does with a member that is absent, so a call has
 * all four. Without a parent it is `null` or `''`.
 */
export interface SiteChanges {
  name: string | null
  description: string | null
  code: string | null
  parentInfrastructureID: number | bigint | null | ''
}

export type ErrorCode =
  | 'invalid_request'
  | 'invalid_return_to'
  | 'login_failed'
  | 'login_required'
  | 'invalid_credentials'
  | 'cross_origin'
  | 'wac_not_allowed'
  | 'upstream_refused'
  | 'not_found'
  | 'method_not_allowed'
  | 'not_acceptable'
  | 'request_timeout'
  | 'length_required'
  | 'payload_too_large'
  | 'uri_too_long'
  | 'unsupported_media_type'
  | 'rate_limited'
  | 'headers_too_large'
  | 'internal_error'
  | 'upstream_error'
  | 'upstream_unavailable'
  | 'store_unavailable'
  | 'token_refreshed'
  | 'authorization_server_unavailable'
  | 'shutting_down'
  | 'upstream_timeout'
  /** No response of the server arrived: no connection, or a worker or proxy answered 5xx in its place. */
  | 'unreachable'
  /** The page itself answered in place of the server: its service worker, or a development server without a proxy. */
  | 'answered_by_page'
  /** `signIn` was called again, without a click, although the last sign-in brought no session. */
  | 'sign_in_loop'

const MESSAGES: Record<string, string> = {
  unreachable: 'The server cannot be reached.',
  answered_by_page:
    'The page answered in place of the server: see "Use a service worker" and "Develop with Vite".',
  sign_in_loop: 'The last sign-in brought no session.',
}

interface Problem {
  detail?: string
  reason?: EndReason | 'device'
  loginUrl?: string
}

/**
 * Every failure of a call, with two exceptions: an abort rejects with the reason of its signal, and a success whose body
 * is no JSON rejects with a `SyntaxError`. `message` is a sentence in English, for developers.
 */
export class BffError extends Error {
  override readonly name = 'BffError'
  /** 0 if there was no response at all. */
  declare readonly status: number
  /** `null` for an error of the platform itself, or a 4xx of a proxy, whose text is in `body`. */
  declare readonly code: ErrorCode | null
  /** With `login_required`: why the session ended, if it did; `device`: it is bound to another device. */
  declare readonly reason: EndReason | 'device' | null
  /** A new sign-in may help: offer it. A 503 that has it may also pass by itself, so do not call `signIn` without a click. */
  declare readonly loginUrl: string | null
  /** For the log of the server. */
  declare readonly requestId: string | null
  /** The wait in seconds that the response asked for. */
  declare readonly retryAfter: number | null
  declare readonly body: string

  constructor(code: ErrorCode | null, response?: Response, body = '', problem: Problem = {}) {
    super(problem.detail ?? MESSAGES[code!] ?? `The platform responded ${response?.status}.`)
    const header = (name: string) => response?.headers.get(name) ?? null
    this.status = response?.status ?? 0
    this.code = code
    this.reason = problem.reason ?? null
    this.loginUrl = problem.loginUrl ?? null
    this.requestId = header('x-request-id')
    this.retryAfter = seconds(header('retry-after'), header('date'))
    this.body = body
  }
}

export interface CallOptions {
  signal?: AbortSignal | undefined
  headers?: Record<string, string> | undefined
  /** A call of a timer: it does not extend the session. */
  background?: boolean | undefined
  /** How long a read may wait in all if responses ask for it by `Retry-After`: 15000. Writes never wait. */
  waitMs?: number | undefined
  /** Called before each such wait, for a notice to the user. */
  onWait?: ((seconds: number, error: BffError) => void) | undefined
}

export interface RequestOptions extends CallOptions {
  method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | undefined
  /** A JSON text, or a file of its own type. */
  body?: string | Blob | FormData | ArrayBuffer | undefined
}

export interface FluxOptions extends CallOptions {
  /** The account code; without it the server's default. */
  wac?: string | undefined
  /** Further parameters for the platform. */
  query?: URLSearchParams | Record<string, string | number | boolean> | undefined
  /** Integers beyond 2^53 become `bigint` and keep every digit. */
  bigint?: boolean | undefined
}

export interface SiteOptions extends CallOptions {
  wac?: string | undefined
  bigint?: boolean | undefined
  /** Sends the given members alone. Only for who knows what this platform does with the others. */
  partial?: boolean | undefined
}

const OF_SIGN_IN = /^\/auth\//
const OF_SERVER = /^\/(auth|flux|site|data)\b/
const LAST_SIGN_IN = 'bff.signIn'
/** As long as the server remembers a sign-in that was begun. */
const SIGN_IN_MS = 3_600_000

const listeners = new Set<(session: Session) => void>()
let tabs: BroadcastChannel | undefined
/** Names what this tab knows of the session: '' is "signed out". */
let known: string | undefined
let changes = 0
let leaving: Promise<never> | undefined

/** Whether somebody is signed in. Does not extend the session, so it may be polled. */
export async function session(options?: CallOptions): Promise<Session> {
  listen()
  requireServer()
  const before = changes
  const found: Session = JSON.parse(await ask('/auth/session', options))
  // Another tab has signed in or out meanwhile, so this answer may be the older one.
  return before === changes ? share(found) : session(options)
}

/**
 * Leaves the page for the sign-in and comes back to `returnTo`, a local path. Never resolves. Rejects with
 * `sign_in_loop` where it would only repeat a sign-in that failed: show a button then. After a click it always goes.
 */
export function signIn(
  returnTo: string = location.pathname + location.search + location.hash,
): Promise<never> {
  leaving ??= leave(returnTo)
  leaving.catch(() => {
    leaving = undefined
  })
  return leaving
}

/** At an address of the server's own a page stands only if its service worker or development server put it there. */
function requireServer(): void {
  if (OF_SIGN_IN.test(location.pathname)) throw new BffError('answered_by_page')
}

async function leave(returnTo: string): Promise<never> {
  requireServer()
  const sinceLast = Date.now() - +sessionStorage.getItem(LAST_SIGN_IN)!
  if (sinceLast < SIGN_IN_MS && !navigator.userActivation?.isActive) throw new BffError('sign_in_loop')
  sessionStorage.setItem(LAST_SIGN_IN, `${Date.now()}`)
  // "Back" may show this page as it was left, with a promise that stays pending.
  addEventListener('pageshow', ({ persisted }) => persisted && location.reload())
  // The server takes 512 bytes.
  const target = returnTo.length > 512 ? location.pathname : returnTo
  location.assign(`/auth/login?returnTo=${encodeURIComponent(target)}`)
  return new Promise(() => {})
}

/** Why the last sign-in failed, or `null`. Removes what a sign-in added to the address: call it before your router. */
export function cameBack(): string | null {
  const url = new URL(location.href)
  const error = url.searchParams.get('login_error')
  if (error) url.searchParams.delete('login_error')
  if (url.hash === '#_') url.hash = ''
  if (url.href !== location.href) history.replaceState(history.state, '', url)
  return error
}

/** Ends the session, tells the other tabs, and goes where the server says that users sign out at the provider too. */
export async function signOut(options?: CallOptions): Promise<void> {
  const response = await request('/auth/logout', { ...options, method: 'POST' })
  const text = await response.text().catch(unreachable(options?.signal))
  changes++
  share({ authenticated: false, loginUrl: '/auth/login' })
  if (text) location.assign(JSON.parse(text).endSessionUrl)
}

/** Counts as use of the session: moves its idle limit, never the absolute one. */
export async function staySignedIn(options?: CallOptions): Promise<SignedIn> {
  return share(JSON.parse(await ask('/auth/session', { ...options, method: 'POST' })))
}

/**
 * Calls `listener` when this page learns that somebody signed in or out, or that the limits moved: here or in another
 * tab. Also looks when the tab is shown again. Returns a function that ends this.
 */
export function onSessionChange(listener: (session: Session) => void): () => void {
  const look = () => {
    if (!document.hidden) session().catch(() => {})
  }
  listen()
  listeners.add(listener)
  document.addEventListener('visibilitychange', look)
  return () => {
    listeners.delete(listener)
    document.removeEventListener('visibilitychange', look)
  }
}

/** GetFlux: the parsed JSON. In another format: the text as it came. */
export async function flux<T = unknown>(
  fluxId: string,
  options?: FluxOptions & { format?: 'JSON' },
): Promise<T>
export async function flux(
  fluxId: string,
  options: FluxOptions & { format: 'XML' | 'CSV' | 'JSV' },
): Promise<string>
export async function flux(
  fluxId: string,
  { wac, format = 'JSON', query, bigint, ...call }: FluxOptions & { format?: string } = {},
): Promise<unknown> {
  const search = new URLSearchParams(query as Record<string, string>)
  search.set('format', format)
  const text = await ask(`${path('/flux', wac, fluxId)}?${search}`, call)
  return format === 'JSON' ? parseJson(text, bigint) : text
}

/** The members of a Site that UpdateSite can change, of any call that returns one: edit this copy, and send all of it. */
export function changesOf({
  name,
  description,
  code,
  parentInfrastructureID = null,
}: Omit<SiteChanges, 'parentInfrastructureID'> & {
  parentInfrastructureID?: SiteChanges['parentInfrastructureID'] | undefined
}): SiteChanges {
  return { name, description, code, parentInfrastructureID }
}

type Changes<Options> = Options extends { partial: true } ? Partial<SiteChanges> : SiteChanges

/** UpdateSite: the Site as it is now. */
export async function updateSite<Options extends SiteOptions = SiteOptions>(
  siteId: number | string,
  changes: Changes<Options>,
  options?: Options,
): Promise<Site<Options extends { bigint: true } ? number | bigint : number>>
export async function updateSite(
  siteId: number | string,
  changes: Partial<SiteChanges>,
  { wac, bigint, ...call }: SiteOptions = {},
): Promise<unknown> {
  const members = Object.entries(changes).flatMap(([name, value]) =>
    value === undefined ? [] : `"${name}":${typeof value === 'bigint' ? value : JSON.stringify(value)}`,
  )
  const text = await ask(path('/site', wac, siteId), { ...call, method: 'PUT', body: `{${members}}` })
  return parseJson(text, bigint)
}

/**
 * Whether a library that repeats failed reads should repeat this one, for example `retry` of TanStack Query: where no
 * response arrived, or that of a gateway, twice. What may be repeated after a wait, the client has repeated itself.
 */
export function shouldRetry(failures: number, error: unknown): boolean {
  if (failures >= 2 || !(error instanceof BffError)) return false
  return !error.retryAfter && (error.code === 'unreachable' || /502|504/.test(`${error.status}`))
}

/** JSON with every integer beyond 2^53 as a `bigint`, if `bigint` is true. */
export function parseJson(text: string, bigint = true): unknown {
  if (!bigint || !/\d{16}/.test(text)) return JSON.parse(text)
  // Not to be guessed, so that no string of the text can pass for a number.
  const mark = `${Math.random()}:`
  const marked = text.replace(
    /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(\.\d+)?(e[+-]?\d+)?/gi,
    (token, fraction, exponent) =>
      token[0] === '"' || fraction || exponent || Number.isSafeInteger(+token) ? token : `"${mark}${token}"`,
  )
  return JSON.parse(marked, (_, value) =>
    typeof value === 'string' && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value,
  )
}

/** Any call of this server. A read waits for `Retry-After`. Throws a `BffError` unless the response is a success. */
export async function request(
  path: string,
  { waitMs = 15_000, onWait, headers, background, ...init }: RequestOptions = {},
): Promise<Response> {
  const { method = 'GET', body, signal } = init
  const sent = {
    'X-CSRF': '1',
    ...(background && { 'X-Activity': 'none' }),
    ...(typeof body === 'string' && { 'Content-Type': 'application/json' }),
    ...headers,
  }
  for (;;) {
    const response = await fetch(path, { ...init, headers: sent } as RequestInit).catch(unreachable(signal))
    // The server sends no fetch a page, and a host of pages alone answers an update with 404 or 405.
    const isPage = response.ok || response.status === 404 || response.status === 405
    if (OF_SERVER.test(path) && isPage && /html/.test(response.headers.get('content-type')!))
      throw new BffError('answered_by_page', response)
    if (response.ok || response.status === 304) return response
    const error = await failure(response, signal)
    // The answer to `session` says when and why, and goes to the listeners of every tab.
    if (known && error.code === 'login_required') session().catch(() => {})
    const wait = error.retryAfter ?? Infinity
    waitMs -= wait * 1000
    if (!/GET|HEAD/.test(method) || waitMs < 0) throw error
    const over = pause(wait * 1000, signal)
    onWait?.(wait, error)
    await over
  }
}

async function ask(path: string, options?: RequestOptions): Promise<string> {
  return await (await request(path, options)).text().catch(unreachable(options?.signal))
}

async function failure(response: Response, signal?: AbortSignal): Promise<BffError> {
  const body = await response.text().catch(unreachable(signal))
  const ours = response.headers.get('content-type')?.startsWith('application/problem+json') && body
  const problem = ours ? JSON.parse(body) : {}
  // Each response of the server has a request id. Angular's worker answers 504 without a connection, a proxy without a server.
  const lost = response.status >= 500 && !response.headers.has('x-request-id')
  return new BffError(problem.code ?? (lost ? 'unreachable' : null), response, body, problem)
}

function unreachable(signal?: AbortSignal) {
  return (cause: unknown): never => {
    throw signal?.aborted ? cause : new BffError('unreachable')
  }
}

/** `Retry-After` in seconds: at least 1, so that no server makes a page spin. */
function seconds(retryAfter: string | null, date: string | null): number | null {
  if (!retryAfter) return null
  const wait = /^\d+$/.test(retryAfter) ? +retryAfter : (Date.parse(retryAfter) - Date.parse(date!)) / 1000
  return wait >= 0 ? Math.max(1, wait) : null
}

function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    setTimeout(resolve, ms)
    signal?.addEventListener('abort', () => reject(signal.reason))
  })
}

function path(route: string, wac: string | undefined, id: number | string): string {
  return `${route}/${wac ? `${encodeURIComponent(wac)}/` : ''}${encodeURIComponent(id)}`
}

function listen(): BroadcastChannel {
  if (!tabs) {
    tabs = new BroadcastChannel('bff.session')
    tabs.onmessage = ({ data }) => learn(data)
  }
  return tabs
}

/** Whether the session differs from what this tab knew. */
function learn(found: Session): boolean {
  let facts = ''
  if (found.authenticated) {
    sessionStorage.removeItem(LAST_SIGN_IN)
    facts = found.sessionId + found.idleExpiresAt
  }
  if (facts === known) return false
  known = facts
  changes++
  for (const listener of listeners) listener(found)
  return true
}

function share<S extends Session>(found: S): S {
  if (learn(found)) listen().postMessage(found)
  return found
}
