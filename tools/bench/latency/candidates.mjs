// What each server adds to a direct call of the resource server, at shares of what its core can do.
import { startAtRate, TOO_LATE_MS } from '../load/at-rate.mjs'
import { runLoad } from '../load/load.mjs'
import { requestsOf } from '../rounds.mjs'

const SIZE = { kilobytes: 1 }
const PROBE_CONNECTIONS = 64
/** A shorter probe says little on a busy machine. */
const LEAST_PROBE_SECONDS = 1
const DIRECT_AUTHORIZATION = `Bearer ${'a'.repeat(800)}`

/** The same requests for every candidate; those without sessions receive the same bytes. */
export function callsOf(services, started) {
  return requestsOf(started, SIZE, services.ourCookies ?? ['session=none'])
}

/** Requests a second that a started server serves as fast as it can, after a warm-up. */
export async function capacityOf(services, started, { warmupSeconds, kind }) {
  const shape = { url: started.url, requests: callsOf(services, started), connections: PROBE_CONNECTIONS }
  const run = (seconds) => runLoad({ kind, folder: services.folder, ...shape, seconds })
  await run(warmupSeconds)
  const { requests, seconds, failed } = await run(Math.max(LEAST_PROBE_SECONDS, warmupSeconds / 2))
  if (requests === 0 || failed > 0) throw new Error(`${failed} of ${requests} answers of a probe were errors`)
  return requests / seconds
}

/**
 * Measures each candidate in a new process in each round. At each share of its capacity a load of the candidate is
 * followed by the same load of the resource server itself. Returns a list of
 * `{candidate, round, share, rate, through, direct}`, the last two as open-loop.mjs prints them, with a `fault`.
 */
export async function measureCandidates({ services, candidates, options, say }) {
  const results = []
  for (let round = 1; round <= options.rounds; round += 1) {
    for (const candidate of round % 2 === 1 ? candidates : [...candidates].reverse()) {
      const started = await candidate.start(services)
      const capacity = await capacityOf(services, started, options)
      for (const share of options.shares) {
        const rate = (capacity * share) / 100
        const leadRate = capacity / 2
        const shape = { requests: callsOf(services, started), rate, leadRate, seconds: options.seconds }
        const through = await load(services, { ...shape, url: started.url })
        const upstream = { url: services.upstreamUrl, authorization: DIRECT_AUTHORIZATION }
        const alone = await load(services, { ...shape, ...upstream })
        const direct = { ...alone, fault: alone.fault ?? overloadOf(alone) }
        say(`round ${round}, ${share} %: ${candidate.name} ${summary(through)}; direct ${summary(direct)}`)
        results.push({ candidate: candidate.name, round, share, rate, through, direct })
      }
      await started.stop()
    }
  }
  return results
}

async function load(services, shape) {
  const { samples, ...result } = await (await startAtRate(services, shape)).result()
  return { ...result, fault: faultOf(result) }
}

/** Why a load at a fixed rate says nothing about a server, or null. */
export function faultOf({ requests, failed, late }) {
  if (failed > 0) return `${failed} of ${requests} answers were errors`
  if (late.p99 === null) return `only ${requests} requests`
  return late.p99 > TOO_LATE_MS ? `the load was ${late.p99.toFixed(1)} ms late` : null
}

/** Why a direct load says that the load generator and the resource server cannot keep up with its rate, or null. */
export function overloadOf({ requests, waited }) {
  return waited > requests / 100 ? `${waited} of ${requests} direct calls had no free connection` : null
}

function summary({ rate, latency: { p50, p99, p999 }, fault }) {
  const figures = [p50, p99, p999].map((value) => value?.toFixed(2) ?? '–').join(' / ')
  return `${Math.round(rate)}/s ${figures} ms${fault === null ? '' : ` (invalid: ${fault})`}`
}
