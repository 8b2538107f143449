import type { OperatorConfig } from '../config/operator.ts'
import { createRedisStore } from '../store/redis/store.ts'
import type { SessionStore } from '../store/store.ts'

const CONNECTED_WITHIN_MS = 5_000
const LOOK_EVERY_MS = 50

/** A store that answers. Rejects where none does within five seconds, or refuses our credentials. */
export async function connect(config: OperatorConfig['store'], idleMs: number): Promise<SessionStore> {
  let refused: string | null = null
  let reason = 'no answer'
  const store = createRedisStore({
    ...config,
    idleMs,
    onRefused: (message) => {
      refused = message
    },
    onUnreachable: (why) => {
      reason = why
    },
    onReachable() {},
    observe() {},
  })
  const givesUpAt = performance.now() + CONNECTED_WITHIN_MS
  for (;;) {
    try {
      await store.ping()
      return store
    } catch {
      if (refused === null && performance.now() < givesUpAt) {
        await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS))
        continue
      }
      await store.close()
      throw new Error(
        refused === null
          ? `Redis cannot be reached (${reason}).`
          : `Redis refuses our credentials (${refused}).`,
      )
    }
  }
}
