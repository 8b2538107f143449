import type { Deployment } from './deployment.ts'
import type { Session } from './invariants.ts'
import { Random } from './random.ts'
import type { BrowserRequest, BrowserResponse, Replica } from './replica.ts'

const TRY_AGAIN_MS = 700
/** The others of a crowd only sign in. */
const ACTIVE_OF_A_CROWD = 4

/** One user with one browser, who signs in, calls, polls and signs out until `rest`. */
export class Browser {
  readonly user: number
  session: Session | null = null
  readonly #deployment: Deployment
  readonly #random: Random
  readonly #cookies = new Map<string, string>()
  #waiting = 0
  #quiet = false

  constructor(deployment: Deployment, user: number) {
    this.#deployment = deployment
    this.user = user
    this.#random = new Random(deployment.seed, `browser ${user}`)
    this.#later(this.#random.between(10, 3_000))
  }

  /** Acts no more. */
  rest(): void {
    this.#quiet = true
  }

  isBusy(): boolean {
    return this.#waiting > 0
  }

  #later(ms: number): void {
    this.#deployment.clock.in(ms, null, () => {
      if (!this.#quiet) this.#act()
    })
  }

  #think(): void {
    const { thinkMs, crowd } = this.#deployment.settings
    if (crowd !== null && this.user >= ACTIVE_OF_A_CROWD) return
    const random = this.#random
    this.#later(Math.min(random.between(20, thinkMs), random.between(20, thinkMs * 2)))
  }

  #act(): void {
    const random = this.#random
    const replica = this.#deployment.anyReplica(random)
    if (replica === null) return void this.#later(TRY_AGAIN_MS)
    if (this.session === null) return void this.#signIn(replica)
    const think = (): void => this.#think()
    // A sign-out is most dangerous while something is wrong.
    const { clock, checker } = this.#deployment
    if (clock.now < checker.disturbedUntil && random.chance(0.1)) return void this.signOut(replica, think)
    switch (random.weighted({ call: 60, burst: 12, poll: 12, leave: 6, 'sign-out': 5, 'sign-in': 3 })) {
      case 'call':
        return void this.call(replica, think)
      case 'burst': {
        let left = 2 + random.int(3)
        const done = (): void => {
          left -= 1
          if (left === 0) think()
        }
        for (let calls = left; calls > 0; calls -= 1)
          this.call(this.#deployment.anyReplica(random) ?? replica, done)
        return
      }
      case 'poll':
        return void this.#poll(replica)
      case 'leave':
        return void this.#later(random.between(5_000, 90_000))
      case 'sign-out':
        return void this.signOut(replica, think)
      case 'sign-in':
        return void this.#signIn(replica)
    }
  }

  #send(
    replica: Replica,
    request: Omit<BrowserRequest, 'cookies'>,
    seen: (response: BrowserResponse) => void,
    done: (response: BrowserResponse | null) => void,
  ): void {
    this.#waiting += 1
    const whole = { ...request, cookies: new Map(this.#cookies) }
    this.#deployment.send(replica, whole, {
      latencyMs: this.#random.between(0.5, 10),
      seen,
      done: (response) => {
        this.#waiting -= 1
        done(response)
      },
    })
  }

  #keepCookies(response: BrowserResponse | null): void {
    for (const [name, value] of response?.setCookies ?? []) this.#cookies.set(name, value)
  }

  call(replica: Replica, done: (response: BrowserResponse | null) => void): void {
    const { session } = this
    const { checker } = this.#deployment
    checker.calls += 1
    const sentAt = this.#deployment.clock.now
    const seen = (response: BrowserResponse): void => {
      if (session === null) return
      if (response.status === 200) {
        if (response.user !== this.user)
          checker.violated(
            'a response is of another user',
            `user ${this.user} got the data of ${response.user}`,
          )
        // While something is wrong several touches may be lost, one after the other.
        if (checker.lives(session) && sentAt > checker.disturbedUntil)
          session.lastActivityAt = Math.max(session.lastActivityAt, sentAt)
      } else if (response.status === 401) checker.refused(session, replica, 'call')
      else if (response.status === 403) checker.forbidden(session, replica, sentAt)
    }
    const received = (response: BrowserResponse | null): void => {
      if (response?.status === 401 && this.session === session) this.session = null
      done(response)
    }
    this.#send(replica, { kind: 'call' }, seen, received)
  }

  #poll(replica: Replica): void {
    const { session } = this
    const seen = (response: BrowserResponse): void => {
      if (session !== null && response.authenticated === false)
        this.#deployment.checker.refused(session, replica, 'poll')
    }
    const done = (response: BrowserResponse | null): void => {
      this.#keepCookies(response)
      if (response?.authenticated === false && this.session === session) this.session = null
      this.#think()
    }
    this.#send(replica, { kind: 'session' }, seen, done)
  }

  /** Signs out. `probed`: a replica that is then called with the cookies of the ended session. */
  signOut(replica: Replica, done: () => void, probed: Replica | null = null): void {
    const { session } = this
    if (session !== null) session.state = 'unknown'
    const seen = (response: BrowserResponse): void => {
      if (session === null || response.status !== 204) return
      session.state = 'ended'
      session.endedAt.set(replica, this.#deployment.clock.now)
    }
    const received = (response: BrowserResponse | null): void => {
      if (response?.clearsCookies && this.session === session) {
        this.session = null
        // Some pages are still open, and call once more with what they have.
        if (probed === null && this.#random.chance(0.2)) this.#cookies.clear()
        else this.#reuseEndedCookies(probed)
      }
      done()
    }
    this.#send(replica, { kind: 'logout' }, seen, received)
  }

  /** Calls with the cookies of a session that has ended, which must be refused. `probed` receives most of them. */
  #reuseEndedCookies(probed: Replica | null): void {
    const cookies = new Map(this.#cookies)
    this.#cookies.clear()
    for (const withinMs of [50, 1_500, 1_500, 1_500, 5_000, 5_000, 30_000]) {
      this.#deployment.clock.in(this.#random.between(0, withinMs), null, () => {
        const replica =
          probed?.ready && withinMs < 30_000 ? probed : this.#deployment.anyReplica(this.#random)
        if (replica !== null) this.#deployment.send(replica, { kind: 'call', cookies }, { latencyMs: 1 })
      })
    }
  }

  /** Signs out by another replica than this one, where other pages go on calling. */
  signOutElsewhere(than: Replica): void {
    const others = this.#deployment.replicas.filter(
      (replica) => replica.ready && replica.alive && replica !== than,
    )
    if (this.session === null || others.length === 0 || this.#quiet) return
    if (than.alive && than.ready) this.call(than, () => {})
    const { session } = this
    const signOut = (): void => {
      if (this.session === session) this.signOut(this.#random.pick(others), () => {}, than)
    }
    // Where Redis is slow, what that call has read is then on its way back.
    if (this.#random.chance(0.5)) this.#deployment.clock.in(this.#random.between(0, 600), null, signOut)
    else signOut()
  }

  #signIn(replica: Replica): void {
    const { settings, authorizationServer, checker } = this.#deployment
    const random = this.#random
    const refreshable = !random.chance(settings.withoutRefreshToken)
    const family = authorizationServer.newFamily(this.user, random.pick(settings.lives))
    const before = this.session
    let session: Session | null = null
    const request = {
      kind: 'sign-in' as const,
      redeem: (wall: number) => {
        const granted = authorizationServer.issue(family, wall)
        return refreshable ? granted : { ...granted, refreshToken: null }
      },
      onKey: (key: string) => {
        session = checker.begin({ key, user: this.user, family, refreshable })
        if (before?.state === 'alive') before.state = 'unknown'
      },
    }
    const seen = (response: BrowserResponse): void => {
      if (session === null) return
      session.state = response.status === 303 ? 'alive' : 'unknown'
      if (response.status !== 303 && before?.state === 'unknown' && before.deletedAt === null)
        before.state = 'alive'
    }
    const done = (response: BrowserResponse | null): void => {
      if (response?.status === 303) {
        this.#keepCookies(response)
        this.session = session
      } else if (session !== null) (session as Session).state = 'unknown'
      this.#think()
    }
    this.#send(replica, request, seen, done)
  }

  /** The user takes the consent back at the authorization server. */
  revoke(): void {
    if (this.session === null) return
    this.session.userRevoked = true
    this.session.family.revoked = true
  }
}
