import { createHash } from 'node:crypto'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { type Answer, type Browser, createBrowser } from '../../test/helpers/browser.ts'
import { decide } from '../../test/helpers/system.ts'
import { elapsed } from '../../test/helpers/wait.ts'
import { Random } from '../../test/simulation/random.ts'
import type { Replica } from './fleet.ts'
import type { Call, Clock, History, Session } from './history.ts'

/** Simulated users in front of all replicas. */
export interface Browsers {
  /** Users whose session is alive and in use. */
  living(): Session[]
  /** Makes so many users sign out at once. */
  signOutSome(count: number): void
  /** While `on`, no user signs out, and every session calls through each replica in turn. */
  heal(on: boolean): void
  stop(): Promise<void>
}

interface BrowsersOptions {
  readonly count: number
  readonly seed: number
  readonly replicas: readonly Replica[]
  readonly sandbox: Sandbox
  readonly history: History
  readonly clock: Clock
  /** Creates a user with an account of the same name. */
  readonly addUser: (username: string) => void
}

export const PASSWORD = 'chaos-password'
export const PUBLIC_URL = 'http://localhost:3000'
/** As through a load balancer. */
const headers = { host: new URL(PUBLIC_URL).host }
/** An ended session is asked for through every replica so long after its end. */
const ASKED_AFTER_MS = [
  50, 350, 700, 1_200, 1_800, 2_600, 3_800, 5_500, 8_000, 12_000, 20_000, 40_000, 70_000,
]

/** Starts the users, who act until `stop`. */
export function startBrowsers(options: BrowsersOptions): Browsers {
  const { replicas, sandbox, history, clock } = options
  const living = new Set<Session>()
  let stopped = false
  let healing = false
  let users = 0
  let pendingSignOuts = 0

  /** Makes a call with these cookies, and adds it to the history. */
  async function call(
    replica: Replica,
    {
      what,
      session,
      cookies,
      send,
    }: Pick<Call, 'what' | 'session'> & {
      cookies: Browser['cookies']
      send: (browser: Browser) => Promise<Answer>
    },
  ): Promise<{ call: Call; answer: Answer | null; cookies: Browser['cookies'] }> {
    const sentAt = clock()
    const browser = createBrowser(replica.url())
    for (const [name, cookie] of cookies) browser.cookies.set(name, cookie)
    let fault = ''
    const answer = await send(browser).catch((error: NodeJS.ErrnoException) => {
      fault = error.code ?? error.message
      return null
    })
    const { code = fault, dataOf = null } = answer === null ? {} : read(what, answer)
    const made: Call = {
      ...{ sentAt, respondedAt: clock(), replica: replica.index, session, what },
      ...{ status: answer?.status ?? 0, code, dataOf },
    }
    history.calls.push(made)
    return { call: made, answer, cookies: browser.cookies }
  }

  async function callFlux(replica: Replica, session: Session, cookies: Browser['cookies']): Promise<void> {
    const path = `/flux/${session.user}/temperature?values=1`
    const send = (browser: Browser) => browser.fetch(path, { headers })
    const made = await call(replica, { what: 'flux', session: session.user, cookies, send })
    if (made.call.status === 401 && session.endingAt === null) session.lostAt ??= made.call.respondedAt
  }

  function anyRunning(random: Random): Replica | null {
    const running = replicas.filter((replica) => replica.isUp())
    return running.length === 0 ? null : random.pick(running)
  }

  /** A complete sign-in, each step through any replica; null if one failed. */
  async function signIn(random: Random): Promise<{ session: Session; cookies: Browser['cookies'] } | null> {
    const first = anyRunning(random)
    if (first === null) return null
    const signInBeganAt = clock()
    const begun = await call(first, {
      ...{ what: 'login', session: null, cookies: new Map() },
      send: (browser) => browser.navigate('/auth/login?returnTo=%2F', { headers }),
    })
    if (begun.answer?.status !== 303) return null
    users += 1
    const user = `u${String(users).padStart(5, '0')}`
    options.addUser(user)
    const credentials = { username: user, password: PASSWORD }
    const back = new URL(await decide(sandbox, String(begun.answer.headers.location), 'accept', credentials))
    const second = anyRunning(random)
    if (second === null) return null
    const { cookies, answer } = await call(second, {
      ...{ what: 'callback', session: null, cookies: begun.cookies },
      send: (browser) => browser.navigate(`${back.pathname}${back.search}`, { headers }),
    })
    const cookie = cookies.get('session')
    if (answer?.status !== 303 || cookie === undefined) return null
    const recordKey = createHash('sha256').update(cookie.value.slice(0, 43)).digest('hex').slice(0, 12)
    const session: Session = {
      ...{ user, signInBeganAt, signedInAt: clock(), recordKey },
      ...{ endingAt: null, ended: null, lostAt: null },
    }
    history.sessions.set(user, session)
    return { session, cookies }
  }

  async function useEverywhere(session: Session, cookies: Browser['cookies']): Promise<void> {
    const running = replicas.filter((replica) => replica.isUp() && !replica.isFrozen())
    await Promise.all(running.map((replica) => callFlux(replica, session, cookies)))
  }

  async function signOut(session: Session, cookies: Browser['cookies'], random: Random): Promise<void> {
    for (let attempt = 0; attempt < 20 && !stopped; attempt += 1) {
      const replica = anyRunning(random)
      if (replica !== null) {
        session.endingAt ??= clock()
        const send = (browser: Browser) => browser.fetch('/auth/logout', { method: 'POST', headers })
        const made = await call(replica, { what: 'logout', session: session.user, cookies, send })
        if (made.call.status === 204) {
          session.ended = { at: made.call.respondedAt, replica: replica.index }
          return askAfterwards(session, cookies)
        }
      }
      await elapsed(random.between(200, 800))
    }
  }

  function askAfterwards(session: Session, cookies: Browser['cookies']): void {
    for (const ms of ASKED_AFTER_MS) {
      const ask = (): void => {
        for (const replica of replicas) {
          if (!stopped && replica.isUp()) void callFlux(replica, session, cookies)
        }
      }
      setTimeout(ask, ms).unref()
    }
  }

  /** One user: signs in, calls, signs out, signs in again. */
  async function runUser(index: number): Promise<void> {
    const random = new Random(options.seed, `browser ${index}`)
    await elapsed(random.between(0, 1_500))
    while (!stopped) {
      const begun = await signIn(random)
      if (begun === null) {
        await elapsed(random.between(200, 900))
        continue
      }
      const { session, cookies } = begun
      living.add(session)
      const staysUntil = clock() + random.between(6_000, 75_000)
      for (let turn = index; !stopped && session.lostAt === null && stays(); turn += 1) {
        const replica = healing ? replicas[turn % replicas.length]! : anyRunning(random)
        // Many at once: one refresh must serve all.
        if (!healing && random.chance(0.06)) await useEverywhere(session, cookies)
        else if (replica?.isUp()) await callFlux(replica, session, cookies)
        // Without calls for a while, tokens are refreshed in the background.
        const quiet = !healing && random.chance(0.03)
        await elapsed(quiet ? random.between(4_000, 9_000) : random.between(200, healing ? 400 : 1_600))
      }
      // Every replica has then just used it.
      if (session.lostAt === null && !stopped && random.chance(0.7)) await useEverywhere(session, cookies)
      if (session.lostAt === null && !stopped) await signOut(session, cookies, random)
      living.delete(session)

      function stays(): boolean {
        if (healing) return true
        if (pendingSignOuts === 0) return clock() < staysUntil
        pendingSignOuts -= 1
        return false
      }
    }
  }

  const all = Promise.all(Array.from({ length: options.count }, (_, index) => runUser(index)))

  return {
    living: () => [...living].filter(({ endingAt, lostAt }) => endingAt === null && lostAt === null),
    signOutSome(count) {
      pendingSignOuts = count
    },
    heal(on) {
      healing = on
      pendingSignOuts = 0
    },
    async stop() {
      stopped = true
      await all
    },
  }
}

/** The parts of a response that the checks use. */
function read(what: Call['what'], answer: Answer): Pick<Call, 'code' | 'dataOf'> {
  try {
    const { code, error, wac } = answer.json()
    const named = typeof code === 'string' ? code : error === undefined ? '' : `upstream ${error}`
    return { code: named, dataOf: what === 'flux' && answer.status === 200 ? String(wac) : null }
  } catch {
    // Redirects and empty responses.
    return { code: '', dataOf: what === 'flux' && answer.status === 200 ? 'unreadable' : null }
  }
}
