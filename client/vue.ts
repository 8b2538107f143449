import { onScopeDispose, type ShallowRef, shallowRef } from 'vue'
import { onSessionChange, type Session, session } from './bff-client.js'

/** The session, or undefined until it is known. `onError`: the first question for it failed. */
export function useSession(onError: (error: unknown) => void): ShallowRef<Session | undefined> {
  const current = shallowRef<Session>()
  const keep = (found: Session): void => {
    current.value = found
  }
  session().then(keep, onError)
  onScopeDispose(onSessionChange(keep))
  return current
}
