import { ReplyError } from 'ioredis'
import type { RedisClient } from './connection.ts'
import { nodeOf, onConnection } from './connection.ts'

/** When a server of the store may have become another one, or could not be written to. */
export interface Trouble {
  /** Tells of a command on `name` that failed; most failures are no trouble. */
  failed(error: unknown, name: string): void
  /** Messages stopped: the server may be gone. */
  lost(): void
  onTrouble(listener: () => void): void
  /** Milliseconds since there was trouble with the server that has this key; infinite for never. */
  msSince(name: string): number
}

/** Of a script these come in the middle of the text. */
const NO_WRITES = /(?:^|[\s-])(?:READONLY|MASTERDOWN|LOADING|CLUSTERDOWN|TRYAGAIN|MISCONF|NOREPLICAS|OOM)\s/

/**
 * Connections tell most of it. A command that takes too long or is not allowed says nothing of that
 * kind; counted as trouble, one that always fails would make it last for ever.
 */
export function createTrouble(commands: RedisClient): Trouble {
  const listeners: (() => void)[] = []
  // Of a Cluster by the node: a shard that is away is no matter to the others.
  const lastAt = new Map<string, number>()

  function note(node: string): void {
    lastAt.set(node, performance.now())
    for (const listener of listeners) listener()
  }

  onConnection(commands, note)

  return {
    failed(error, name) {
      if (NO_WRITES.test(error instanceof ReplyError ? String(error) : '')) note(nodeOf(commands, name))
    },
    lost: () => note(''),
    onTrouble: (listener) => void listeners.push(listener),
    msSince: (name) => performance.now() - (lastAt.get(nodeOf(commands, name)) ?? Number.NEGATIVE_INFINITY),
  }
}
