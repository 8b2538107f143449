import type { Worker } from 'node:cluster'

/** Asks a worker why it should get no traffic; `Answer` comes back with the same number. */
interface Question {
  question: 'objections'
  number: number
}

interface Answer {
  number: number
  objections: string[]
}

/** Exit code of a worker whose fault another start would not cure; it has told it on stderr. */
export const WORKER_FAULT = 78

/** A worker that says nothing for so long counts as one that should get no traffic. */
const PATIENCE_MS = 2_000

let asked = 0

/** What a worker objects to being given traffic; a worker that does not answer is itself an objection. */
export function askWorker(worker: Worker): Promise<string[]> {
  asked += 1
  const question: Question = { question: 'objections', number: asked }
  return new Promise((resolve) => {
    const timer = setTimeout(() => settle(['a worker does not answer']), PATIENCE_MS)
    function settle(objections: string[]): void {
      clearTimeout(timer)
      worker.off('message', listen)
      resolve(objections)
    }
    function listen(message: Partial<Answer>): void {
      if (message.number === question.number && message.objections !== undefined) settle(message.objections)
    }
    worker.on('message', listen)
    if (!worker.isConnected()) settle(['a worker has ended'])
    else worker.send(question, () => {})
  })
}

/** In a worker: answers what the primary asks. */
export function answerPrimary(objections: () => Promise<string[]>): void {
  process.on('message', async (message: Partial<Question>) => {
    if (message.question !== 'objections' || message.number === undefined) return
    const answer: Answer = { number: message.number, objections: await objections() }
    process.send?.(answer, undefined, undefined, () => {})
  })
}
