import type { Test } from 'tap'
import type { Answer } from './browser.ts'

/** Tests that an answer is a problem of this status and code. */
export function isProblem(t: Test, answer: Answer, status: number, code: string, what: string): void {
  t.equal(answer.status, status, what)
  t.equal(answer.json().code, code, what)
}
