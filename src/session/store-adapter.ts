import type { SessionStore as FastifySessionStore } from '@fastify/session'
import type { Session } from 'fastify'
import type { RecordKey, SessionStore } from '../store/store.ts'
import { StoreUnavailable } from '../store/store.ts'
import { recordKeyOf } from './cookies.ts'

export interface StoreAdapterOptions {
  store: SessionStore
  idleMs: number
  /** Ends a session that the browser gave up. */
  end: (key: RecordKey) => Promise<unknown>
}

/**
 * The store as @fastify/session sees it. `set` updates a record that exists and never makes one:
 * the library writes a whole session back at the end of a request, which would bring one back to
 * life that was ended meanwhile.
 */
export function createStoreAdapter({ store, idleMs, end }: StoreAdapterOptions): FastifySessionStore {
  async function get(sessionId: string): Promise<Session | null> {
    const record = await store.read(recordKeyOf(sessionId))
    return record === null ? null : (JSON.parse(record.session) as Session)
  }

  async function set(sessionId: string, session: Session): Promise<void> {
    const { cookie: _attributes, ...kept } = session
    if (await store.saveSession(recordKeyOf(sessionId), JSON.stringify(kept), idleMs)) return
    throw new StoreUnavailable(new Error('there is no record to keep the session in'))
  }

  // Callbacks: with a store of promises the library waits for ever.
  return {
    get: (sessionId, done) => void get(sessionId).then((session) => done(null, session), done),
    set: (sessionId, session, done) => void set(sessionId, session).then(() => done(), done),
    destroy: (sessionId, done) => void end(recordKeyOf(sessionId)).then(() => done(), done),
  }
}
