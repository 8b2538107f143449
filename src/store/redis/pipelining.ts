import { Cluster } from 'ioredis'
import type { RedisClient } from './connection.ts'

/**
 * What gathers the commands of one turn of the event loop, told of each before it is sent, so that they
 * go out to each server in one write: one for each command would cost more than all else that it does.
 */
export function gatherWrites(client: RedisClient): () => void {
  let held: { uncork(): void }[] = []

  function release(): void {
    const streams = held
    held = []
    for (const stream of streams) stream.uncork()
  }

  return function gather() {
    if (held.length > 0) return
    for (const { stream } of client instanceof Cluster ? client.nodes() : [client]) {
      // There is none before it is connected.
      if (stream === undefined) continue
      stream.cork()
      held.push(stream)
    }
    if (held.length > 0) setImmediate(release)
  }
}
