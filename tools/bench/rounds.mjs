// The HTTP loads of all candidates, and what each costs.
import { runLoad } from './load/load.mjs'
import { cpuOf, peakOf } from './machine.mjs'
import { BROWSER_HEADERS, get } from './sign-in.mjs'
import { compareInTurns } from './turns.mjs'

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

/** The candidate with which all others are compared. */
const REFERENCE = 'bare'

/**
 * Loads every candidate with each size, see turns.mjs. Returns the results by size and candidate, one for each round.
 * Throws if a response is wrong.
 */
export async function runRounds({ services, candidates, sizes, options, kind, say }) {
  const results = new Map(sizes.map((size) => [size, new Map(candidates.map(({ name }) => [name, []]))]))

  async function start(candidate) {
    const started = await candidate.start(services)
    const order = (size, seconds) => ({
      ...{ services, candidate: { ...candidate, started }, size, seconds, kind, say },
      requests: requestsOf(started, size, services.ourCookies ?? ['session=none']),
    })
    return {
      async warmUp(size, seconds) {
        const { candidate, ...rest } = order(size, seconds)
        await checkAnswer({ candidate, ...rest })
        // An empty cache is no error yet.
        await measure({ ...rest, candidate: { ...candidate, check: undefined } })
      },
      takeTurn: (size, seconds) => measure(order(size, seconds)),
      stop: started.stop,
    }
  }

  await compareInTurns({
    candidates,
    reference: candidates.length > 1 ? candidates.find(({ name }) => name === REFERENCE) : undefined,
    kinds: sizes,
    options,
    start,
    add({ round, kind: size, candidate: { name }, loads, besideLoads }) {
      const result = resultOf(loads)
      const beside = besideLoads.length === 0 ? null : resultOf(besideLoads).cpu
      const ratio = result.cpu === null || beside === null ? null : result.cpu / beside
      say(`${size.kilobytes} KB, round ${round}: ${name} ${summary(result, ratio)}`)
      results
        .get(size)
        .get(name)
        .push({ ...result, ratio })
    },
  })
  return [...results.values()]
}

/** What the loads of one candidate cost together. */
function resultOf(loads) {
  const total = (key) => loads.reduce((sum, load) => sum + load[key], 0)
  const requests = total('requests')
  return {
    perSecond: requests / total('seconds'),
    cpu: loads.some(({ cpu }) => cpu === null) ? null : total('cpu') / requests,
    peak: loads.at(-1).peak,
    redisCommands: total('redisCommands') / requests,
  }
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
  const redisCommands = (await services.redisCommands()) - redisBefore
  const served = (await services.counts()).served - servedBefore
  stopAlongside?.()

  const result = {
    requests: outcome.requests,
    seconds: outcome.seconds,
    cpu: cpuBefore === null || cpuAfter === null ? null : cpuAfter - cpuBefore,
    peak: peakOf(pid),
    redisCommands,
  }
  const fault = faultOf(outcome, served) ?? candidate.check?.(redisCommands / outcome.requests) ?? null
  return { ...result, fault }
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

function summary({ perSecond, cpu, redisCommands }, ratio) {
  const micros = cpu === null ? 'CPU unknown' : `${cpu.toFixed(1)} µs CPU`
  const compared = ratio === null ? '' : ` (× ${ratio.toFixed(2)})`
  return `${Math.round(perSecond)}/s, ${micros}${compared}, ${redisCommands.toFixed(2)} Redis commands`
}
