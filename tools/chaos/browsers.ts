import { createHash } from 'node:crypto'
import { Agent, request } from 'node:http'
import type { Fleet, Replica } from './fleet.ts'
import type { Call, Clock, History, Session } from './history.ts'
import { createRandom, type Random } from './random.ts'
import { SESSION_IDLE_SECONDS } from './settings.ts'

interface BrowserResponse {
  readonly status: number
  readonly location: string
  readonly setCookies: readonly string[]
  readonly text: string
}

interface BrowserRequest {
  readonly path: string
  /** Cookies by name. */
  readonly jar: Map<string, string>
  readonly method?: string
  readonly body?: string | null
  /** As a navigation of the browser, not a call of the page. */
  readonly navigate?: boolean
}

/** Simulated users in front of all replicas. */
interface Browsers {
  /** Users whose session is alive and in use. */
  living(): Session[]
  /** Makes so many users sign out at once. */
  signOutSome(count: number): void
  /** From now on no user signs out, and every session calls through each replica in turn. */
  beginHealing(): void
  endHealing(): void
  stop(): Promise<void>
}

interface BrowsersOptions {
  readonly count: number
  readonly seed: string
  readonly fleet: Fleet
  readonly publicUrl: string
  readonly history: History
  readonly clock: Clock
  /** Creates a user with an account of the same name. */
  readonly addUser: (username: string) => void
  /** Called with each code that the authorization server issued. */
  readonly onCode: (code: string, user: string) => void
  /** Called with each session cookie. */
  readonly onCookie: (value: string) => void
}

export const PASSWORD = 'chaos-password'
/** A response that takes longer counts as missing. */
const GIVE_UP_MS = 15_000
/** An ended session is asked for through every replica so long after its end, */
const ASKED_AFTER_MS = [50, 350, 700, 1_200, 1_800, 2_600, 3_800, 5_500]
/** and now and then until so long. */
const PROBED_MS = 75_000
/** Of the idle limit, and of how exactly activity is recorded. */
const SLEEP_MS = { from: SESSION_IDLE_SECONDS * 1_000 - 11_000, to: SESSION_IDLE_SECONDS * 1_000 - 8_500 }

/** Starts the users, who act until `stop`. */
export function startBrowsers(options: BrowsersOptions): Browsers {
  const { fleet, history, clock } = options
  const agent = new Agent({ keepAlive: true, maxSockets: 100, maxFreeSockets: 4 })
  const pages = new Map<Session, { jar: Map<string, string>; asleep: boolean }>()
  const ended: { session: Session; jar: Map<string, string> }[] = []
  let stopped = false
  let healing = false
  let users = 0
  /** Number of users who still have to sign out at once. */
  let pendingSignOuts = 0
  let wakeUps: (() => void)[] = []

  function send(
    replica: Replica,
    { path, jar, method = 'GET', body = null, navigate = false }: BrowserRequest,
  ): Promise<BrowserResponse> {
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ')
    const headers: Record<string, string> = {
      host: new URL(options.publicUrl).host,
      ...(cookie === '' ? {} : { cookie }),
      ...(navigate
        ? { 'sec-fetch-site': 'none', 'sec-fetch-mode': 'navigate', accept: 'text/html,*/*' }
        : { 'sec-fetch-site': 'same-origin', 'sec-fetch-mode': 'cors' }),
      ...(body === null ? {} : { 'content-type': 'application/json' }),
    }
    return exchange(`${replica.url}${path}`, { agent, method, headers, body })
  }

  /** Makes a call of a session, and adds it to the history. */
  async function call(
    replica: Replica,
    { session, what, ...browserRequest }: BrowserRequest & { session: Session | null; what: Call['what'] },
  ): Promise<{ recorded: Call; response: BrowserResponse }> {
    const sentAt = clock()
    const response = await send(replica, browserRequest)
    const { code, dataOf, authenticated } = read(what, response)
    const recorded: Call = {
      ...{ sentAt, respondedAt: clock(), replica: replica.index, session: session?.user ?? null, what },
      ...{ status: response.status, code, dataOf, authenticated },
    }
    history.calls.push(recorded)
    return { recorded, response }
  }

  function callFlux(replica: Replica, session: Session, jar: Map<string, string>): ReturnType<typeof call> {
    return call(replica, { session, what: 'flux', path: `/flux/${session.user}/temperature?values=1`, jar })
  }

  function randomRunningReplica(random: Random): Replica | null {
    const running = fleet.replicas.filter((replica) => replica.isUp())
    return running.length === 0 ? null : random.pick(running)
  }

  /** A complete sign-in; null if a step failed. */
  async function signIn(random: Random): Promise<Session | null> {
    const jar = new Map<string, string>()
    const first = randomRunningReplica(random)
    if (first === null) return null
    const signInBeganAt = clock()
    const path = '/auth/login?returnTo=%2F'
    const { response: start } = await call(first, { session: null, what: 'login', path, jar, navigate: true })
    if (start.status !== 303) return null
    keep(jar, start)
    users += 1
    const user = `u${String(users).padStart(5, '0')}`
    options.addUser(user)
    const form = new URLSearchParams({ username: user, password: PASSWORD, decision: 'accept' })
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    const decided = await exchange(start.location, { agent, method: 'POST', headers, body: form.toString() })
    if (decided.status !== 302) return null
    const back = new URL(decided.location)
    const code = back.searchParams.get('code')
    if (code === null) return null
    options.onCode(code, user)
    const second = randomRunningReplica(random)
    if (second === null) return null
    const { response: done } = await call(second, {
      session: null,
      what: 'callback',
      path: `${back.pathname}${back.search}`,
      jar,
      navigate: true,
    })
    const cookie = keep(jar, done)
    if (done.status !== 303 || cookie === null) return null
    const session: Session = {
      ...{ user, signInBeganAt, signedInAt: clock(), recordKey: recordKeyOf(cookie) },
      ...{ endingAt: null, ended: null, lostAt: null, cameBackAt: null },
    }
    history.sessions.set(user, session)
    pages.set(session, { jar, asleep: false })
    return session
  }

  /** Keeps the cookies of a response. Returns the value of the session cookie if it was set. */
  function keep(jar: Map<string, string>, response: BrowserResponse): string | null {
    let session: string | null = null
    for (const line of response.setCookies) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
      if (/max-age=0/i.test(line)) jar.delete(name)
      else jar.set(name, value)
      if (name === 'session' && value !== '') {
        session = value
        options.onCookie(value)
      }
    }
    return session
  }

  /** One call of a living session, through this replica or a random one. */
  async function use(session: Session, random: Random, through: Replica | null = null): Promise<void> {
    const replica = through ?? randomRunningReplica(random)
    const page = pages.get(session)
    if (replica === null || page === undefined) return
    const { jar } = page
    const draw = random.next()
    const { user } = session
    if (draw < 0.78) {
      const { recorded } = await callFlux(replica, session, jar)
      judge(session, recorded)
    } else if (draw < 0.9) {
      const path = `/site/${user}/${random.integer(1, 9)}`
      const body = JSON.stringify({ name: `of ${user}` })
      const { recorded } = await call(replica, { session, what: 'site', path, jar, method: 'PUT', body })
      judge(session, recorded)
    } else {
      const path = '/auth/session'
      const { recorded, response } = await call(replica, { session, what: 'session', path, jar })
      // A cookie that is cleared because of a wrong response is kept: it shows whether the session comes back.
      if (recorded.authenticated === true) keep(jar, response)
      judge(session, recorded)
    }
  }

  async function useEverywhere(session: Session, random: Random): Promise<void> {
    const running = fleet.replicas.filter((each) => each.isUp() && !each.isFrozen())
    await Promise.all(running.map((each) => use(session, random, each)))
  }

  function judge(session: Session, recorded: Call): void {
    if (session.endingAt !== null) return
    const { sentAt, respondedAt, status } = recorded
    const refused = status === 401 || recorded.authenticated === false
    if (refused) session.lostAt ??= respondedAt
    else if (session.lostAt !== null && status === 200 && sentAt > session.lostAt) {
      session.cameBackAt ??= respondedAt
    }
  }

  async function signOut(session: Session, random: Random): Promise<void> {
    const jar = pages.get(session)?.jar
    if (jar === undefined) return
    for (let attempt = 0; attempt < 20 && !stopped; attempt += 1) {
      const replica = randomRunningReplica(random)
      if (replica !== null) {
        session.endingAt ??= clock()
        const path = '/auth/logout'
        const { recorded } = await call(replica, { session, what: 'logout', path, jar, method: 'POST' })
        if (recorded.status === 204) {
          session.ended = { at: recorded.respondedAt, replica: replica.index }
          break
        }
      }
      await pause(random.integer(200, 800))
    }
    pages.delete(session)
    if (session.ended === null) return
    ended.push({ session, jar })
    void askAfterwards(session, jar)
  }

  /** Asks for a session that has ended through every replica, often at first. */
  async function askAfterwards(session: Session, jar: Map<string, string>): Promise<void> {
    let elapsed = 0
    for (const at of ASKED_AFTER_MS) {
      await pause(at - elapsed)
      elapsed = at
      if (stopped) return
      for (const replica of fleet.replicas) {
        // Not awaited: a call that hangs must not delay the others.
        if (replica.isUp()) void callFlux(replica, session, jar)
      }
    }
  }

  /** One user: signs in, calls, signs out, signs in again. */
  async function runUser(index: number): Promise<void> {
    const random = createRandom(`${options.seed} browser ${index}`)
    const sleeper = index % 12 === 5
    await pause(random.integer(0, 1_500))
    while (!stopped) {
      const session = await signIn(random)
      if (session === null) {
        await pause(random.integer(200, 900))
        continue
      }
      const staysUntil = clock() + random.integer(6_000, sleeper ? 140_000 : 75_000)
      let turn = index
      while (!stopped && session.lostAt === null && (healing || clock() < staysUntil)) {
        if (pendingSignOuts > 0 && !healing) {
          pendingSignOuts -= 1
          break
        }
        if (healing) {
          turn += 1
          const replica = fleet.replicas[turn % fleet.replicas.length]!
          if (replica.isUp()) await use(session, random, replica)
          await pause(random.integer(150, 400))
        } else if (random.chance(0.06)) {
          // Many at once: one refresh must serve all.
          await useEverywhere(session, random)
        } else {
          await use(session, random)
          const quiet = random.chance(0.03) ? random.integer(4_000, 15_000) : random.integer(250, 1_600)
          await pause(quiet, true)
        }
        if (sleeper && !healing && session.lostAt === null && random.chance(0.05))
          await sleep(session, random)
      }
      if (session.lostAt !== null) await afterLoss(session, random)
      else if (!stopped) {
        // Every replica has then just used it.
        if (random.chance(0.7)) await useEverywhere(session, random)
        if (session.lostAt === null) await signOut(session, random)
        else await afterLoss(session, random)
      }
    }
  }

  async function sleep(session: Session, random: Random): Promise<void> {
    const page = pages.get(session)!
    // Lasting use first, so that the replicas have written down that the session is in use.
    for (let round = 0; round < 8 && !stopped; round += 1) {
      await use(session, random)
      await pause(1_000)
    }
    if (session.lostAt !== null) return
    page.asleep = true
    await pause(random.integer(SLEEP_MS.from, SLEEP_MS.to))
    page.asleep = false
    await use(session, random)
  }

  /** Whether a refusal was temporary. */
  async function afterLoss(session: Session, random: Random): Promise<void> {
    for (let attempt = 0; attempt < 6 && !stopped && session.cameBackAt === null; attempt += 1) {
      await use(session, random)
      await pause(400)
    }
    pages.delete(session)
  }

  /** Asks for sessions that have ended, through every replica in turn. */
  async function probe(): Promise<void> {
    const random = createRandom(`${options.seed} probe`)
    while (!stopped) {
      await pause(300)
      while (ended.length > 0 && clock() - (ended[0]!.session.ended?.at ?? 0) > PROBED_MS) ended.shift()
      const replica = randomRunningReplica(random)
      if (ended.length === 0 || replica === null) continue
      const { session, jar } = random.pick(ended)
      void callFlux(replica, session, jar)
    }
  }

  /** Ends early when everything stops, and where `wakes` is true when something changes for all users. */
  function pause(ms: number, wakes = false): Promise<void> {
    return new Promise((resolve) => {
      const due = clock() + ms
      const step = (): void => {
        const left = due - clock()
        if (stopped || left <= 0) resolve()
        else setTimeout(step, Math.min(left, 500))
      }
      step()
      if (wakes) wakeUps.push(resolve)
    })
  }

  function wakeAll(): void {
    const all = wakeUps
    wakeUps = []
    for (const wake of all) wake()
  }

  const all = Promise.all([...Array.from({ length: options.count }, (_, index) => runUser(index)), probe()])

  return {
    living: () =>
      [...pages]
        .filter(([session, { asleep }]) => !asleep && session.endingAt === null && session.lostAt === null)
        .map(([session]) => session),
    signOutSome(count) {
      pendingSignOuts = count
      wakeAll()
    },
    beginHealing() {
      healing = true
      pendingSignOuts = 0
      wakeAll()
    },
    endHealing() {
      healing = false
    },
    async stop() {
      stopped = true
      await all
      agent.destroy()
    },
  }
}

/** The parts of a response that the checks use. */
function read(
  what: Call['what'],
  response: BrowserResponse,
): Pick<Call, 'code' | 'dataOf' | 'authenticated'> {
  const none = { code: '', dataOf: null, authenticated: null }
  if (response.status === 0) return { ...none, code: response.text }
  let json: Record<string, unknown> = {}
  try {
    json = JSON.parse(response.text) as Record<string, unknown>
  } catch {
    if (what === 'flux' || what === 'site' || what === 'session') {
      return { ...none, code: response.status === 200 ? 'unreadable' : '' }
    }
    return none
  }
  const code =
    typeof json.code === 'string' ? json.code : typeof json.error === 'string' ? `upstream ${json.error}` : ''
  if (response.status !== 200) return { ...none, code }
  switch (what) {
    case 'flux':
      return { ...none, dataOf: String(json.wac) }
    case 'site':
      return { ...none, dataOf: String(json.name).replace(/^of /, '') }
    case 'session':
      return { ...none, authenticated: json.authenticated === true }
    default:
      return none
  }
}

/** The beginning of a record's name, as logs have it. */
function recordKeyOf(cookie: string): string {
  return createHash('sha256').update(cookie.slice(0, 43)).digest('hex').slice(0, 12)
}

/** Never rejects: without a response the status is 0 and the text is the reason. */
function exchange(
  url: string,
  {
    body,
    ...options
  }: { agent: Agent; method: string; headers: Record<string, string>; body: string | null },
): Promise<BrowserResponse> {
  return new Promise((resolve) => {
    const fail = (text: string): void => resolve({ status: 0, location: '', setCookies: [], text })
    const outgoing = request(url, options, (incoming) => {
      const chunks: Buffer[] = []
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
      incoming.on('error', () => fail('cut off'))
      incoming.on('end', () => {
        clearTimeout(timer)
        resolve({
          status: incoming.statusCode ?? 0,
          location: incoming.headers.location ?? '',
          setCookies: incoming.headers['set-cookie'] ?? [],
          text: Buffer.concat(chunks).toString('utf8'),
        })
      })
    })
    const timer = setTimeout(() => outgoing.destroy(new Error('no response')), GIVE_UP_MS)
    outgoing.on('error', (error: NodeJS.ErrnoException) => {
      clearTimeout(timer)
      fail(error.code ?? error.message)
    })
    outgoing.end(body ?? undefined)
  })
}
