import type { SessionStore, StoreUnavailable } from '../vault/vault.ts'

interface ReadinessOptions {
  isListening: () => boolean
  ping: SessionStore['ping']
  warnings: () => readonly string[]
}

/** Whether this process should get traffic: the response of `/readyz`. */
export interface Readiness {
  /** What is missing, in words; empty when the process is ready. */
  missing(): Promise<string[]>
  /** Faults of the deployment that do not make the process unready. */
  warnings(): readonly string[]
  isStopping(): boolean
  /** From now on the process is not ready. */
  announceStop(): void
}

/** A process is ready while its port is open and the store takes writes. */
export function createReadiness({ isListening, ping, warnings }: ReadinessOptions): Readiness {
  let stopping = false

  async function missing(): Promise<string[]> {
    const reasons: string[] = []
    if (stopping) reasons.push('the process is stopping')
    if (!isListening()) reasons.push('the public port is not open')
    const failure = await ping().then(
      () => null,
      (error: StoreUnavailable) => error,
    )
    if (failure !== null)
      reasons.push(failure.unreached ? 'the store does not answer' : 'the store takes no writes')
    return reasons
  }

  return {
    missing,
    warnings,
    isStopping: () => stopping,
    announceStop() {
      stopping = true
    },
  }
}
