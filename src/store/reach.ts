import { ReplyError } from 'ioredis'
import { type RedisClient, reasonOf } from './redis-client.ts'

/** What the last words from the store say about whether it is there. */
export interface Reach {
  answered(): void
  /** Tells whether that failure means that the store could not be reached. */
  failed(error: unknown): boolean
  /** Whether the last command found nobody. */
  isLost(): boolean
}

const REFUSAL = /WRONGPASS|NOAUTH|NOPERM|invalid password|invalid username/i

/** Whether a server that answered with this does not take our credentials. */
export function isRefusal(error: Error): boolean {
  return REFUSAL.test(reasonOf(error))
}

/**
 * A server that answers with an error is there, whatever it refuses. So is one that does not take our
 * credentials, which shows at its connection alone: the commands find none then.
 */
export function createReach(commands: RedisClient): Reach {
  let lost = false
  let refused = false
  const note = (error: Error): void => {
    if (isRefusal(error)) refused = true
  }
  commands.on('error', note)
  // A Cluster names the last of its nodes alone there, which may be down where the others refuse.
  commands.on('node error', note)

  return {
    answered() {
      lost = false
      refused = false
    },
    failed(error) {
      lost = !refused && !(error instanceof ReplyError)
      return lost
    },
    isLost: () => lost && !refused,
  }
}
