import type { Worker } from 'node:cluster'

/** The primary asks a worker what it lacks to be ready; the reply repeats the number. */
interface ReadinessRequest {
  ask: 'readiness'
  number: number
}

interface ReadinessReply {
  number: number
  missing: string[]
}

/** Exit code of a worker that wrote on stderr why a new start would fail as well. */
export const PERMANENT_FAILURE = 78

/** A worker that is silent for this long counts as not ready. */
const PATIENCE_MS = 2_000

/** In the primary: a function that asks a worker what it lacks to be ready. A silent worker is not ready. */
export function createReadinessQuery(): (worker: Worker) => Promise<string[]> {
  let asked = 0
  return (worker) => {
    asked += 1
    const request: ReadinessRequest = { ask: 'readiness', number: asked }
    return new Promise((resolve) => {
      const timer = setTimeout(() => finish(['a worker does not answer']), PATIENCE_MS)
      function finish(missing: string[]): void {
        clearTimeout(timer)
        worker.off('message', listen)
        resolve(missing)
      }
      function listen(message: Partial<ReadinessReply>): void {
        if (message.number === request.number && message.missing !== undefined) finish(message.missing)
      }
      worker.on('message', listen)
      if (!worker.isConnected()) finish(['a worker has ended'])
      else worker.send(request, () => {})
    })
  }
}

/** In a worker: answers the primary's question. */
export function answerPrimary(missing: () => Promise<string[]>): void {
  process.on('message', async (message: Partial<ReadinessRequest>) => {
    if (message.ask !== 'readiness' || message.number === undefined) return
    const reply: ReadinessReply = { number: message.number, missing: await missing() }
    process.send?.(reply, undefined, undefined, () => {})
  })
}
