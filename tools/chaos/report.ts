import type { Outcome } from './campaign.ts'
import { at } from './checks.ts'
import type { Mode } from './history.ts'

/** Violations of each check that are described with their history. */
const IN_FULL = 4

/** The summary of one campaign, as readable lines. */
export function summarize(mode: Mode, { history, verdict, tookMs, memoryMegabytes }: Outcome): string[] {
  const { calls, sessions, tokenRequests, faults, failovers, processes } = history
  const refreshes = tokenRequests.filter(({ kind }) => kind === 'refresh')
  const granted = refreshes.filter(({ outcome }) => outcome === 'granted').length
  const ended = [...sessions.values()].filter((session) => session.ended !== null).length
  const lines = [
    `summary of ${mode}: ${(tookMs / 1_000).toFixed(0)} s, ${history.healings.length} rounds`,
    `  calls      ${calls.length}: ${counted(calls.map(({ status }) => (status === 0 ? 'no response' : String(status))))}`,
    `  sessions   ${sessions.size} signed in, ${ended} signed out, ${verdict.losses.length} lost within documented limits`,
    `  refreshes  ${refreshes.length} presentations, ${granted} granted`,
    `  failovers  ${failovers.length}; restarts of replicas ${processes.filter(({ what }) => what === 'started').length - 3}; at most ${memoryMegabytes.toFixed(0)} MB a replica`,
    `  faults     ${faults.length}`,
    ...table(faults.map(({ kind }) => kind)),
  ]
  if (verdict.losses.length > 0) {
    lines.push('  sessions lost, by documented limit', ...table(verdict.losses.map(({ cause }) => cause)))
  }
  if (verdict.limits.size > 0) {
    lines.push('  limits that were used without a loss')
    for (const [name, count] of verdict.limits) lines.push(`    ${String(count).padStart(5)}  ${name}`)
  }
  const broken = verdict.violations.map(({ check }) => check)
  if (broken.length > 0) lines.push('  violations, by check', ...table(broken))
  const longest = history.healings.reduce((most, { from, until }) => Math.max(most, until - from), 0)
  lines.push(
    `  longest healing ${at(longest)}; longest stall of this machine ${at(Math.max(0, ...history.stalls.map(({ ms }) => ms)))}`,
  )
  return lines
}

/** The violations. Of each check the first ones, or all, with the history that led to them. */
export function describeViolations({ verdict }: Outcome, full: boolean): string[] {
  const described = new Map<string, number>()
  return verdict.violations.flatMap(({ check, what, at: when, history }) => {
    const before = described.get(check) ?? 0
    described.set(check, before + 1)
    const title = `VIOLATION at ${at(when)}: ${what}`
    return full || before < IN_FULL ? ['', title, ...history.map((line) => `    ${line}`)] : [title]
  })
}

/** The sessions that were lost within a documented limit, with the history that proves it. */
export function describeLosses({ verdict }: Outcome): string[] {
  return verdict.losses.flatMap(({ user, at: when, cause, history }) => [
    '',
    `LOST at ${at(when)}: the session of ${user}: ${cause}`,
    ...history.map((line) => `    ${line}`),
  ])
}

function counted(words: readonly string[]): string {
  return [...tally(words)].map(([word, count]) => `${word} ${count}`).join(', ')
}

function table(words: readonly string[]): string[] {
  return [...tally(words)].map(([word, count]) => `    ${String(count).padStart(5)}  ${word}`)
}

function tally(words: readonly string[]): [string, number][] {
  const counts = new Map<string, number>()
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
  return [...counts].sort(([, one], [, other]) => other - one)
}
