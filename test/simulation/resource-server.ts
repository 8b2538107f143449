import type { Outcome } from '../../src/proxy/resource-server.ts'
import type { AccessToken } from './authorization-server.ts'
import type { Random } from './random.ts'
import type { Replica } from './replica.ts'
import type { VirtualClock } from './virtual-clock.ts'

interface ResourceServerOptions {
  clock: VirtualClock
  random: Random
  introspects: boolean
  /** Called with each token that it refuses as invalid. */
  onRefused: (token: AccessToken) => void
}

/** Responds to calls with the data of the user whose token it receives. */
export class SimulatedResourceServer {
  /** Faults in force: every token is refused, or responses are delayed. */
  refusesAll = 0
  slowMs = 0
  readonly #options: ResourceServerOptions

  constructor(options: ResourceServerOptions) {
    this.#options = options
  }

  call(
    token: AccessToken | null,
    by: Replica,
    settle: (outcome: Outcome, user: number | null) => void,
  ): void {
    const { clock, random, introspects, onRefused } = this.#options
    const way = (): number => random.between(0.5, 5) + this.slowMs / 2
    const respond = (outcome: Outcome, user: number | null): void => {
      clock.in(way(), by, () => settle(outcome, user))
    }
    clock.in(way(), null, () => {
      const dead = token === null || clock.now >= token.expiresAt
      if (dead || this.refusesAll > 0 || (introspects && token.family.revoked)) {
        if (token !== null) onRefused(token)
        return respond({ kind: 'token_refused', namesInvalidToken: true, status: 401 }, null)
      }
      respond({ kind: 'finished', status: 200 }, token.family.user)
    })
  }
}
