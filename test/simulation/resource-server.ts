import type { Outcome } from '../../src/proxy/resource-client.ts'
import type { AccessToken } from './authorization-server.ts'
import type { Deployment } from './deployment.ts'
import { Random } from './random.ts'
import type { Replica } from './replica.ts'

/** Responds to calls with the data of the user whose token it receives. */
export class SimulatedResourceServer {
  /** Faults in force: every token is refused, or responses are delayed. */
  refusesAll = 0
  slowMs = 0
  readonly #deployment: Deployment
  readonly #random: Random

  constructor(deployment: Deployment) {
    this.#deployment = deployment
    this.#random = new Random(deployment.seed, 'resource server')
  }

  call(
    token: AccessToken | null,
    by: Replica,
    settle: (outcome: Outcome, user: number | null) => void,
  ): void {
    const { clock, settings, checker } = this.#deployment
    const way = (): number => this.#random.between(0.5, 5) + this.slowMs / 2
    const respond = (outcome: Outcome, user: number | null): void => {
      clock.in(way(), by, () => settle(outcome, user))
    }
    clock.in(way(), null, () => {
      const dead = token === null || clock.now >= token.expiresAt
      if (dead || this.refusesAll > 0 || (settings.introspects && token.family.revoked)) {
        if (token !== null) checker.tokenRefused(token)
        return respond({ kind: 'token_refused', namesInvalidToken: true, status: 401 }, null)
      }
      token.used = true
      respond({ kind: 'finished', status: 200 }, token.family.user)
    })
  }
}
