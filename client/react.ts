import { useEffect, useRef, useState } from 'react'
import { onSessionChange, type Session, session } from './bff-client.js'

/** The session, or undefined until it is known. `onError`: the first question for it failed. */
export function useSession(onError: (error: unknown) => void): Session | undefined {
  const [current, setCurrent] = useState<Session>()
  const report = useRef(onError)
  useEffect(() => {
    // Perhaps another function at each render.
    report.current = onError
  })
  useEffect(() => {
    session().then(setCurrent, (error) => report.current(error))
    return onSessionChange(setCurrent)
  }, [])
  return current
}
