import { ReplyError } from 'ioredis'
import { isConnected, type RedisClient, reasonOf } from './connection.ts'

/** What the last words from the store say about whether it is there. */
export interface Reach {
  answered(): void
  /** Tells whether that failure means that the store could not be reached, no part of it. */
  failed(error: unknown): boolean
  /** Whether the last command found nobody, and nobody else answers. */
  isLost(): boolean
}

/** Two heartbeats, and less than a command waits for its answer: by then a store that is there has answered. */
const SILENT_AFTER_MS = 700

const REFUSAL = /WRONGPASS|NOAUTH|NOPERM|invalid password|invalid username/i

/** Whether a server that answered with this does not take our credentials. */
export function isRefusal(error: Error): boolean {
  return REFUSAL.test(reasonOf(error))
}

/**
 * A server that answers with an error is there, whatever it refuses. So is one that does not take our
 * credentials, which shows at its connection alone: the commands find none then. And a Cluster is there
 * while one of its nodes answers.
 */
export function createReach(commands: RedisClient): Reach {
  let lost = false
  let refused = false
  let answeredAt = Number.NEGATIVE_INFINITY
  const note = (error: Error): void => {
    if (isRefusal(error)) refused = true
  }
  commands.on('error', note)
  // A Cluster names the last of its nodes alone there, which may be down where the others refuse.
  commands.on('node error', note)

  function isLost(): boolean {
    if (!lost || refused) return false
    return !isConnected(commands) || performance.now() - answeredAt > SILENT_AFTER_MS
  }

  return {
    answered() {
      lost = false
      refused = false
      answeredAt = performance.now()
    },
    failed(error) {
      lost = !(error instanceof ReplyError)
      if (!lost) answeredAt = performance.now()
      return isLost()
    },
    isLost,
  }
}
