import { isErrorReply, nodeOf, onConnection, type RedisClient, reasonOf } from './connection.ts'

/** What the results of commands and the state of connections show about the servers. */
export interface CommandHealth {
  /** To be called when a command succeeded. */
  noteSuccess(): void
  /** To be called when a command failed, with a Redis key that it works on or null. */
  noteFailure(error: unknown, redisKey: string | null): void
  /** The error of a failed command, for the log. If there was no connection it says why, instead of ioredis' text. */
  explain(error: unknown): unknown
  /** As in `StoreHealth`. */
  onIncident(listener: () => void): void
  /** Milliseconds since the last incident at the server that has this Redis key; infinite for never. */
  msSinceIncident(redisKey: string): number
}

/** What ioredis says of a command that found no connection or lost it. */
const NO_CONNECTION =
  /^(?:Stream isn't writeable|Cluster isn't ready|Connection is closed|Reached the max retries)/

const REFUSED = /WRONGPASS|NOAUTH|NOPERM|invalid password|invalid username|^database \d+ is refused/i

/** Error replies of a server that takes no writes. In the error of a script they are in the middle of the text. */
export const NO_WRITES =
  /(?:^|[\s-])(?:READONLY|MASTERDOWN|LOADING|CLUSTERDOWN|TRYAGAIN|MISCONF|NOREPLICAS|OOM)\s/

/** A command that is not allowed or takes too long is no incident: some fail always, and incidents delay refreshes. */
export function createCommandHealth(commands: RedisClient): CommandHealth {
  const listeners: (() => void)[] = []
  // By node in a Cluster: an incident at one shard says nothing about the others.
  const incidentAt = new Map<string, number>()
  /** Why there is no connection; '' if nothing is known. */
  let connectionError = ''

  const noteError = (error: Error): void => {
    const reason = reasonOf(error)
    if (!NO_CONNECTION.test(reason)) connectionError = reason
  }
  commands.on('error', noteError)
  // The error of a Cluster names only its last node, which may be down where the others refuse.
  commands.on('node error', noteError)
  onConnection(commands, noteIncident)

  function noteIncident(node: string): void {
    incidentAt.set(node, performance.now())
    for (const listener of listeners) listener()
  }

  return {
    noteSuccess() {
      connectionError = ''
    },
    noteFailure(error, redisKey) {
      if (isErrorReply(error) && NO_WRITES.test(String(error))) noteIncident(nodeOf(commands, redisKey))
    },
    explain(error) {
      if (!(error instanceof Error && NO_CONNECTION.test(error.message))) return error
      const why = connectionError === '' ? '' : `: ${connectionError}`
      return new Error(`not connected to Redis${why}`, { cause: error })
    },
    onIncident: (listener) => void listeners.push(listener),
    msSinceIncident: (redisKey) =>
      performance.now() - (incidentAt.get(nodeOf(commands, redisKey)) ?? Number.NEGATIVE_INFINITY),
  }
}

/** Whether this error says that the server refused our credentials or our database. */
export function isRefusedLogin(error: Error): boolean {
  return REFUSED.test(reasonOf(error))
}
