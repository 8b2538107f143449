import type { Outcome, ProblemBody } from './api.ts'
import { element } from './dom.ts'

const UNREACHABLE: ProblemBody = {
  status: 0,
  code: 'unreachable',
  title: 'The server cannot be reached',
  detail: 'No answer came. Is it running, and is this device connected?',
  requestId: null,
  loginUrl: null,
}

/** Fills a live region with the problem of an outcome, or empties and hides it when there is none. */
export function showProblem(box: HTMLElement, outcome: Outcome): void {
  const problem = outcome === null ? UNREACHABLE : outcome.problem
  box.hidden = problem === null
  box.replaceChildren(...(problem === null ? [] : describe(problem)))
}

/** Shows an input error that was found before the request. */
export function showFault(box: HTMLElement, title: string, detail: string): void {
  box.hidden = false
  box.replaceChildren(element('p', 'problem-title', title), element('p', 'problem-detail', detail))
}

function describe(problem: ProblemBody): HTMLElement[] {
  const facts = element('dl', 'facts')
  const add = (name: string, value: string, className: string): void => {
    facts.append(element('div', '', element('dt', '', name), element('dd', className, value)))
  }
  if (problem.status > 0) add('Status', String(problem.status), 'problem-status')
  add('Code', problem.code, 'problem-code')
  if (problem.requestId !== null) add('Request', problem.requestId, 'problem-request-id')
  const title = element('p', 'problem-title', problem.title)
  if (problem.detail === `${problem.title}.`) return [title, facts]
  return [title, element('p', 'problem-detail', problem.detail), facts]
}
