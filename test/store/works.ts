import { once } from 'node:events'
import type { RedisClient } from '../../src/store/redis/connection.ts'
import type { SessionStore } from '../../src/store/store.ts'
import { elapsed } from '../helpers/wait.ts'

/** Polls until the store takes writes. */
export async function untilItWorks(store: SessionStore): Promise<void> {
  for (;;) {
    const works = await store.ping().then(
      () => true,
      () => false,
    )
    if (works) return
    await elapsed(20)
  }
}

/** Waits until a client for commands alone has its connection. */
export async function untilConnected(client: RedisClient): Promise<void> {
  if (client.status !== 'ready') await once(client, 'ready')
}
