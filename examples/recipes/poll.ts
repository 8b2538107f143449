// Reads a Flux again and again while the tab is shown, and lets its user be signed out when nobody uses the page.
import { flux } from './bff-client'

/** Returns what stops it: in React `useEffect(() => poll('temperature', 30, setSeries, explain), [])`. */
export function poll<T>(
  fluxId: string,
  seconds: number,
  onRead: (value: T) => void,
  onError: (error: unknown) => void,
): () => void {
  const read = () => {
    if (!document.hidden) flux<T>(fluxId, { background: true }).then(onRead, onError)
  }
  const timer = setInterval(read, seconds * 1_000)
  read()
  return () => clearInterval(timer)
}
