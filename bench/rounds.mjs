// Runs the loads in the order A B C ... C B A, each round in new processes, and measures the cost of each.
import { runLoad } from './load/load.mjs'
import { cpuOf, peakOf } from './machine.mjs'
import { BROWSER_HEADERS, get } from './sign-in.mjs'

const FLUXES = 1_000
const WAC = { 1: 'small', 256: 'big' }
const BYTES = { 1: 1_024, 256: 262_144 }

/** The requests of the browsers: cookies and fluxes in rotation. */
export function requestsOf({ cookies }, { kilobytes }, otherCookies) {
  // Candidates without sessions receive the same bytes.
  const sent = cookies ?? otherCookies
  return Array.from({ length: FLUXES }, (_, at) => ({
    path: `/flux/${WAC[kilobytes]}/s${at + 1}`,
    cookie: sent[at % sent.length],
  }))
}

/**
 * Starts every candidate in each round, since the compiler of Node decides again in each process, and loads it
 * with each size; the order is reversed in every second round. Returns the results by size and candidate, one for
 * each round. Throws if a response is wrong.
 */
export async function runRounds({ services, candidates, sizes, options, kind, say }) {
  const results = sizes.map(() => new Map(candidates.map(({ name }) => [name, []])))
  for (let round = 1; round <= options.rounds; round += 1) {
    for (const candidate of round % 2 === 1 ? candidates : [...candidates].reverse()) {
      const started = await candidate.start(services)
      for (const [at, size] of sizes.entries()) {
        const requests = requestsOf(started, size, services.ourCookies ?? ['session=none'])
        const order = { services, candidate: { ...candidate, started }, requests, size, kind, say }
        await checkAnswer(order)
        // During the warm-up an empty cache is no error.
        const warmUp = { ...order, candidate: { ...order.candidate, check: undefined } }
        await measure({ ...warmUp, seconds: options.warmupSeconds })
        const result = await measure({ ...order, seconds: options.seconds })
        say(`${size.kilobytes} KB, round ${round}: ${candidate.name} ${summary(result)}`)
        results[at].get(candidate.name).push(result)
      }
      await started.stop()
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

async function checkAnswer({ candidate: { name, started }, requests, size }) {
  const [{ path, cookie }] = requests
  const { status, body } = await get(started.url + path, { ...BROWSER_HEADERS, cookie })
  if (status === 200 && body.length === BYTES[size.kilobytes]) return
  throw new Error(`${name} answers ${status} with ${body.length} bytes: ${body.subarray(0, 300)}`)
}

function summary({ perSecond, cpu, redisCommands }) {
  const micros = cpu === null ? 'CPU unknown' : `${cpu.toFixed(1)} µs CPU`
  return `${Math.round(perSecond)}/s, ${micros}, ${redisCommands.toFixed(2)} Redis commands`
}
