import { type Clock, SYSTEM_CLOCK } from '../../clock.ts'
import type { Logger } from '../../log.ts'
import type { AuthorizationClient } from '../../oauth/client.ts'
import type { Secret } from '../../secret.ts'
import { withTimeout } from '../../timeout.ts'
import type { TokenSet } from '../session.ts'
import type { RecordKey } from '../store/record.ts'
import { inLog } from '../store/store.ts'

type Revocable = Pick<TokenSet, 'accessToken' | 'refreshToken'>

export interface Revoker {
  /**
   * Revokes both tokens in the background (RFC 7009). A failure is only logged, with the digits of `recordKey`: the
   * session that had them.
   */
  revoke(tokens: Revocable, recordKey?: RecordKey): void
  /** Resolves when a revocation slot is free. Used to pace bulk revocation. */
  freeSlot(): Promise<void>
  /** Resolves when all revocations are done, those that are tried again included: a minute after the last call at most. */
  settled(): Promise<void>
  /**
   * Resolves when all revocations are done, or after `withinMs`; none is begun after that. Those that wait to be tried
   * again are tried at once, for the last time.
   */
  stop(withinMs: number): Promise<void>
}

const MAX_RUNNING = 8
/** Revocation is optional: an authorization server that is down must not fill our memory. */
const MAX_WAITING = 1_000
/** Pauses before a revocation without a definite answer is tried again. */
const AGAIN_AFTER_MS = [1_000, 5_000, 15_000] as const
/** A later one could end what the same browser has signed in to meanwhile: Keycloak knows both as one session. */
const WITHIN_MS = 60_000

/** The tokens of one session that are not revoked yet. */
interface Revocation {
  readonly recordKey: RecordKey | undefined
  /** Monotonic. */
  readonly endsAt: number
  tokens: (readonly [token: Secret, hint: 'refresh_token' | 'access_token'])[]
  tries: number
  /** Why a token will not be revoked: a definite answer. */
  refusal: string | null
}

interface RevokerOptions {
  authorizationClient: Pick<AuthorizationClient, 'revoke'>
  log: Logger
  clock?: Pick<Clock, 'monotonic'>
}

export function createRevoker({ authorizationClient, log, clock = SYSTEM_CLOCK }: RevokerOptions): Revoker {
  const waiting: Revocation[] = []
  const running = new Set<Promise<void>>()
  const pausing = new Map<Revocation, NodeJS.Timeout>()
  const waitForAll: (() => void)[] = []
  let stopping = false

  function startNext(): void {
    const next = running.size < MAX_RUNNING ? waiting.shift() : undefined
    if (next === undefined) return
    const work = run(next).finally(() => {
      running.delete(work)
      startNext()
      noteSettled()
    })
    running.add(work)
  }

  async function run(revocation: Revocation): Promise<void> {
    const { tokens, tries, endsAt } = revocation
    const undecided: Revocation['tokens'] = []
    let reason: string | null = null
    for (const [token, hint] of tokens) {
      const failure = await authorizationClient.revoke(token, hint, endsAt - clock.monotonic())
      if (failure?.isDefinite) revocation.refusal = failure.reason
      else if (failure !== null) {
        undecided.push([token, hint])
        reason = failure.reason
      }
    }
    const pauseMs = AGAIN_AFTER_MS[tries]
    const mayPause = !stopping && pauseMs !== undefined && clock.monotonic() + pauseMs < endsAt
    if (undecided.length === 0 || !mayPause) return logUnrevoked(revocation, reason ?? revocation.refusal)
    revocation.tokens = undecided
    revocation.tries += 1
    pausing.set(
      revocation,
      setTimeout(() => tryAgain(revocation), pauseMs),
    )
  }

  function tryAgain(revocation: Revocation): void {
    clearTimeout(pausing.get(revocation))
    pausing.delete(revocation)
    waiting.push(revocation)
    startNext()
  }

  function logUnrevoked({ recordKey }: Revocation, reason: string | null): void {
    if (reason === null) return
    log.warn(
      { event: 'revocation.failed', reason, recordKey: recordKey && inLog(recordKey) },
      'tokens could not be revoked: they stay valid until they expire',
    )
  }

  function noteSettled(): void {
    if (running.size === 0 && pausing.size === 0) for (const resolve of waitForAll.splice(0)) resolve()
  }

  function settled(): Promise<void> {
    return new Promise((resolve) => {
      waitForAll.push(resolve)
      noteSettled()
    })
  }

  return {
    revoke({ accessToken, refreshToken }, recordKey) {
      if (waiting.length + pausing.size >= MAX_WAITING)
        return log.warn(
          { event: 'revocation.skipped', recordKey: recordKey && inLog(recordKey) },
          'too many revocations wait: these tokens stay valid until they expire',
        )
      waiting.push({
        recordKey,
        endsAt: clock.monotonic() + WITHIN_MS,
        tokens: [
          ...(refreshToken === null ? [] : [[refreshToken, 'refresh_token'] as const]),
          [accessToken, 'access_token'],
        ],
        tries: 0,
        refusal: null,
      })
      startNext()
    },
    async freeSlot() {
      while (running.size >= MAX_RUNNING) await Promise.race(running)
    },
    settled,
    async stop(withinMs) {
      stopping = true
      for (const revocation of [...pausing.keys()]) tryAgain(revocation)
      await withTimeout(settled(), withinMs)
      for (const revocation of waiting.splice(0)) logUnrevoked(revocation, 'the process stopped')
    },
  }
}
