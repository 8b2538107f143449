/** Within this time after a signal another of its kind is the copy that npm sent. */
const COPY_MS = 500

/** What a stop signal asks for: that the server stops, that it ends at once, or nothing that is new. */
type Meaning = 'stop' | 'end' | 'copy'

/**
 * Tells what each stop signal of this process means. A terminal sends Ctrl-C to npm and to the server, and npm sends
 * it to the server again: below npm one key press is two signals.
 */
export function createStopSignals({
  isUnderNpm,
  monotonic,
}: {
  isUnderNpm: boolean
  monotonic: () => number
}): (signal: NodeJS.Signals) => Meaning {
  let first: { signal: NodeJS.Signals; at: number } | null = null
  return (signal) => {
    if (first === null) {
      first = { signal, at: monotonic() }
      return 'stop'
    }
    const isCopy = isUnderNpm && signal === first.signal && monotonic() - first.at < COPY_MS
    return isCopy ? 'copy' : 'end'
  }
}
