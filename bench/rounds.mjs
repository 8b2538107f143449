// Runs the loads in the order A B C ... C B A and measures the cost of each.
import { runLoad } from './load/load.mjs'
import { cpuOf, forgetPeak, peakOf } from './machine.mjs'
import { BROWSER_HEADERS, get } from './sign-in.mjs'

const FLUXES = 1_000
const WAC = { 1: 'small', 256: 'big' }
const BYTES = { 1: 1_024, 256: 262_144 }

/** The requests of the browsers: cookies and fluxes in rotation. */
function requestsOf({ cookies }, { kilobytes }, otherCookies) {
  // Candidates without sessions receive the same bytes.
  const sent = cookies ?? otherCookies
  return Array.from({ length: FLUXES }, (_, at) => ({
    path: `/flux/${WAC[kilobytes]}/s${at + 1}`,
    cookie: sent[at % sent.length],
  }))
}

/**
 * Loads every candidate in each round, with the order reversed in every second one. Returns the results of
 * all rounds by candidate. Throws if a response is wrong.
 */
export async function runRounds({ services, candidates, size, options, kind, say }) {
  const results = new Map(candidates.map(({ name }) => [name, []]))
  const fallback = services.ourCookies ?? ['session=none']
  const one = (candidate, seconds) =>
    measure({
      services,
      candidate,
      requests: requestsOf(candidate.started, size, fallback),
      size,
      seconds,
      kind,
      say,
    })

  for (const candidate of candidates) {
    await checkAnswer(candidate, size, fallback)
    // During the warm-up an empty cache is no error.
    await one({ ...candidate, check: undefined }, options.warmupSeconds)
    forgetPeak(candidate.started.pid)
  }
  for (let round = 1; round <= options.rounds; round += 1) {
    const order = round % 2 === 1 ? candidates : [...candidates].reverse()
    for (const candidate of order) {
      const result = await one(candidate, options.seconds)
      say(`${size.kilobytes} KB, round ${round}: ${candidate.name} ${summary(result)}`)
      results.get(candidate.name).push(result)
    }
  }
  return results
}

/** Repeats a failed load once: a single broken connection is tolerated. */
async function measure(order) {
  const first = await load(order)
  if (first.fault === null) return first
  order.say(`${order.candidate.name}: ${first.fault}; repeating it once`)
  const second = await load(order)
  if (second.fault !== null) throw new Error(`${order.candidate.name}: ${second.fault}`)
  return second
}

async function load({ services, candidate, requests, size, seconds, kind }) {
  const { pid, url, alongside } = candidate.started
  const stopAlongside = alongside?.()
  const servedBefore = (await services.counts()).served
  const redisBefore = await services.redisCommands()
  const cpuBefore = cpuOf(pid)
  const outcome = await runLoad({
    kind,
    folder: services.folder,
    url,
    requests,
    connections: size.connections,
    seconds,
  })
  const cpuAfter = cpuOf(pid)
  const redisCommands = ((await services.redisCommands()) - redisBefore) / outcome.requests
  const served = (await services.counts()).served - servedBefore
  stopAlongside?.()

  const result = {
    perSecond: outcome.requests / outcome.seconds,
    p50: outcome.p50,
    p99: outcome.p99,
    cpu: cpuBefore === null || cpuAfter === null ? null : (cpuAfter - cpuBefore) / outcome.requests,
    peak: peakOf(pid),
    redisCommands,
  }
  return { ...result, fault: faultOf(outcome, served) ?? candidate.check?.(result) ?? null }
}

/** Why a load is invalid, or null. A redirect, or a page of the candidate itself, did not come from upstream. */
export function faultOf({ requests, failed }, served) {
  if (requests === 0) return 'no answers at all'
  if (failed > 0) return `${failed} of ${requests} answers were errors`
  return served < requests ? `${requests - served} of ${requests} answers did not come from upstream` : null
}

async function checkAnswer({ name, started }, size, fallback) {
  const [{ path, cookie }] = requestsOf(started, size, fallback)
  const { status, body } = await get(started.url + path, { ...BROWSER_HEADERS, cookie })
  if (status === 200 && body.length === BYTES[size.kilobytes]) return
  throw new Error(`${name} answers ${status} with ${body.length} bytes: ${body.subarray(0, 300)}`)
}

function summary({ perSecond, cpu, redisCommands }) {
  const micros = cpu === null ? 'CPU unknown' : `${cpu.toFixed(1)} µs CPU`
  return `${Math.round(perSecond)}/s, ${micros}, ${redisCommands.toFixed(2)} Redis commands`
}
