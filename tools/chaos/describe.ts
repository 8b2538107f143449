import type { Verdict } from './checks.ts'
import { at, type History, type TokenRequest } from './history.ts'

interface Span {
  readonly from: number
  readonly until: number
}

/** Events of the log that concern every session of a process. */
const OF_ALL = /"event":"(?:store|breaker|stop)\./
const FIRST_LINES = 20
const LAST_LINES = 100
/** Violations of each check that are described with their history. */
const IN_FULL = 4

/** Everything that concerns a user in this time, in order. */
export function historyOf(history: History, user: string | null, span: Span): string[] {
  const session = user === null ? undefined : history.sessions.get(user)
  const lines = linesOfAll(history)
  if (session !== undefined) {
    lines.push([session.signedInAt, `${session.user} signed in (record ${session.recordKey})`])
    if (session.ended !== null)
      lines.push([session.ended.at, `signed out by replica ${session.ended.replica}`])
  }
  let last = ''
  for (const call of history.calls) {
    if (user === null || call.session !== user) continue
    const text = `${call.what} through replica ${call.replica}: ${call.status} ${call.code}`
    // Repeated equal responses add nothing.
    if (text !== last) lines.push([call.sentAt, `${text} (${at(call.respondedAt - call.sentAt)})`])
    last = text
  }
  const tokens = new Set(
    history.tokenRequests.filter((request) => request.user === user).map(({ token }) => token),
  )
  for (const request of history.tokenRequests) {
    if (request.isRefresh && tokens.has(request.token))
      lines.push([request.arrivedAt, describeRequest(request)])
  }
  for (const { at, replica, text } of history.logs) {
    if ((session !== undefined && text.includes(session.recordKey)) || OF_ALL.test(text))
      lines.push([at, `log of replica ${replica}: ${text}`])
  }
  return format(lines, span)
}

/** Everything that concerns a replica in this time, in order. */
export function around(history: History, span: Span, replica: number): string[] {
  const own = history.logs.filter((line) => line.replica === replica)
  const lines = own.map(({ at, text }): [number, string] => [at, `log: ${text}`])
  return format([...linesOfAll(history), ...lines], span)
}

function linesOfAll(history: History): [number, string][] {
  const lines: [number, string][] = []
  for (const { kind, replica, detail, from, until } of history.faults) {
    const named = [kind, ...(replica === null ? [] : [`replica ${replica}`]), detail].join(' ')
    lines.push([from, `FAULT ${named}`])
    if (until !== null) lines.push([until, `healed: ${named}`])
  }
  for (const event of history.processes) lines.push([event.at, `replica ${event.replica} ${event.what}`])
  for (const failover of history.failovers) lines.push([failover.at, `FAILOVER to ${failover.to}`])
  for (const stall of history.stalls)
    if (stall.ms > 300) lines.push([stall.at, `this machine stalled for ${at(stall.ms)}`])
  return lines
}

function format(all: [number, string][], { from, until }: Span): string[] {
  const lines = all.filter(([when]) => when >= from && when <= until).sort(([one], [other]) => one - other)
  const formatted = lines.map(([when, text]) => `${at(when)}  ${text}`)
  const leftOut = lines.length - FIRST_LINES - LAST_LINES
  if (leftOut <= 0) return formatted
  return [
    ...formatted.slice(0, FIRST_LINES),
    `  … ${leftOut} lines left out`,
    ...formatted.slice(-LAST_LINES),
  ]
}

export function describeRequest(request: TokenRequest): string {
  const { replica, token, arrivedAt, forwardedAt, deliveredAt, closedAt, status, outcome, fault } = request
  return [
    `refresh with ${token} by replica ${replica} at ${at(arrivedAt)}`,
    forwardedAt === null ? 'never passed on' : `passed on ${at(forwardedAt)}`,
    `outcome ${outcome ?? 'unknown'}`,
    ...(fault === null ? [] : [`met ${fault}`]),
    deliveredAt !== null
      ? `responded ${status} at ${at(deliveredAt)}`
      : closedAt !== null
        ? `closed at ${at(closedAt)}`
        : 'open',
  ].join(', ')
}

/** The violations: of each check the first ones with the history that led to them. */
export function describeViolations({ violations }: Verdict): string[] {
  const described = new Map<string, number>()
  return violations.flatMap(({ check, what, at: when, history }) => {
    const before = described.get(check) ?? 0
    described.set(check, before + 1)
    const title = `VIOLATION at ${at(when)}: ${what}`
    return before < IN_FULL ? ['', title, ...history.map((line) => `    ${line}`)] : [title]
  })
}

/** The summary of one campaign, as readable lines. */
export function summarize({ calls, sessions, ...history }: History, verdict: Verdict): string[] {
  const refreshes = history.tokenRequests.filter(({ isRefresh }) => isRefresh)
  const granted = refreshes.filter(({ outcome }) => outcome === 'granted').length
  const ended = [...sessions.values()].filter((session) => session.ended !== null).length
  const restarts = history.processes.filter(({ what }) => what === 'exited').length
  const statuses = tally(calls.map(({ status }) => (status === 0 ? 'no response' : String(status))))
  const longest = Math.max(0, ...history.healings.map(({ from, until }) => until - from))
  return [
    `  calls      ${calls.length}: ${statuses.map(([status, count]) => `${status} ${count}`).join(', ')}`,
    `  sessions   ${sessions.size} signed in, ${ended} signed out, ${verdict.losses.length} lost within documented limits`,
    `  refreshes  ${refreshes.length} presentations, ${granted} granted`,
    `  failovers  ${history.failovers.length}; ends of replicas ${restarts}`,
    `  healing    ${history.healings.length} rounds, at most ${at(longest)}; longest stall of this machine ${at(Math.max(0, ...history.stalls.map(({ ms }) => ms)))}`,
    ...table(
      'faults',
      history.faults.map(({ kind }) => kind),
    ),
    ...table(
      'sessions lost, by documented limit',
      verdict.losses.map(({ cause }) => cause),
    ),
    ...table(
      'violations, by check',
      verdict.violations.map(({ check }) => check),
    ),
  ]
}

function table(title: string, words: readonly string[]): string[] {
  if (words.length === 0) return []
  return [`  ${title}`, ...tally(words).map(([word, count]) => `    ${String(count).padStart(5)}  ${word}`)]
}

function tally(words: readonly string[]): [string, number][] {
  const counts = new Map<string, number>()
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
  return [...counts].sort(([, one], [, other]) => other - one)
}
