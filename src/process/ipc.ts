import type { Worker } from 'node:cluster'
import type { Readiness } from '../ops/readiness.ts'

/** The primary asks a worker what it lacks to be ready; the reply repeats the number. */
interface ReadinessRequest {
  ask: 'readiness'
  number: number
}

interface ReadinessReply extends WorkerState {
  number: number
}

/** What a worker lacks to be ready, and its warnings of the deployment. */
interface WorkerState {
  missing: string[]
  warnings: readonly string[]
}

/** Exit code of a worker that wrote on stderr why a new start would fail as well. */
export const PERMANENT_FAILURE = 78

/** A worker that is silent for this long counts as not ready. */
const PATIENCE_MS = 2_000

/** In the primary: a function that asks a worker what it lacks to be ready. A silent worker is not ready. */
export function createReadinessQuery(): (worker: Worker) => Promise<WorkerState> {
  let asked = 0
  return (worker) => {
    asked += 1
    const request: ReadinessRequest = { ask: 'readiness', number: asked }
    return new Promise((resolve) => {
      const timer = setTimeout(
        () => finish({ missing: ['a worker does not answer'], warnings: [] }),
        PATIENCE_MS,
      )
      function finish(state: WorkerState): void {
        clearTimeout(timer)
        worker.off('message', listen)
        worker.off('disconnect', giveUp)
        resolve(state)
      }
      function listen(message: Partial<ReadinessReply>): void {
        const { number, missing, warnings = [] } = message
        if (number === request.number && missing !== undefined) finish({ missing, warnings })
      }
      function giveUp(): void {
        finish({ missing: ['a worker has ended'], warnings: [] })
      }
      worker.on('message', listen)
      worker.on('disconnect', giveUp)
      if (!worker.isConnected()) giveUp()
      else worker.send(request, () => {})
    })
  }
}

/** In a worker: answers the primary's question. */
export function replyToPrimary({ missing, warnings }: Pick<Readiness, 'missing' | 'warnings'>): void {
  process.on('message', async (message: Partial<ReadinessRequest>) => {
    if (message.ask !== 'readiness' || message.number === undefined) return
    const reply: ReadinessReply = { number: message.number, missing: await missing(), warnings: warnings() }
    process.send?.(reply, undefined, undefined, () => {})
  })
}
