import type { Outcome } from '../../src/proxy/resource-server.ts'
import type { AccessToken } from './authorization-server.ts'
import type { Random } from './random.ts'
import type { Replica } from './replica.ts'
import type { VirtualClock } from './virtual-clock.ts'

/** Responds to calls with the data of the user whose token it receives. */
export class SimulatedResourceServer {
  /** Faults in force: every token is refused, no call gets a response, or responses are delayed. */
  refusesAll = 0
  down = 0
  slowMs = 0
  readonly #clock: VirtualClock
  readonly #random: Random
  readonly #introspects: boolean
  readonly #onRefused: (token: AccessToken) => void

  constructor(options: {
    clock: VirtualClock
    random: Random
    introspects: boolean
    /** Called with each token that it refuses as invalid. */
    onRefused: (token: AccessToken) => void
  }) {
    this.#clock = options.clock
    this.#random = options.random
    this.#introspects = options.introspects
    this.#onRefused = options.onRefused
  }

  call(
    token: AccessToken | null,
    by: Replica,
    settle: (outcome: Outcome, user: number | null) => void,
  ): void {
    const way = (): number => this.#random.between(0.5, 5) + this.slowMs / 2
    const respond = (outcome: Outcome, user: number | null): void => {
      this.#clock.in(way(), by, () => settle(outcome, user))
    }
    this.#clock.in(way(), null, () => {
      if (this.down > 0) return respond({ kind: 'unavailable', cause: new Error('down') }, null)
      const dead = token === null || this.#clock.now >= token.expiresAt
      if (dead || this.refusesAll > 0 || (this.#introspects && token.family.revoked)) {
        if (token !== null) this.#onRefused(token)
        return respond({ kind: 'token_refused', namesInvalidToken: true, status: 401 }, null)
      }
      respond({ kind: 'finished', status: 200 }, token.family.user)
    })
  }
}
