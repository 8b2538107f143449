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
