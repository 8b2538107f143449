// Loads all candidates in turns, each round in new processes, and measures the cost of each.
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

/** Shorter loads would be mostly the opening of connections; wrk knows whole seconds only. */
const TURN_SECONDS = 1
/** The warm-up before a further size, as a share of the first: most of the code is the same. */
const FURTHER_WARMUP = 1 / 3

/**
 * Starts every candidate in each round, since the compiler of Node decides again in each process. After a warm-up
 * the candidates are loaded in turns of a second: what else the machine does then slows all of them alike. The order
 * is reversed in every second round. Returns the results by size and candidate, one for each round. Throws if a
 * response is wrong.
 */
export async function runRounds({ services, candidates, sizes, options, kind, say }) {
  const results = sizes.map(() => new Map(candidates.map(({ name }) => [name, []])))
  for (let round = 1; round <= options.rounds; round += 1) {
    const running = []
    for (const candidate of round % 2 === 1 ? candidates : [...candidates].reverse())
      running.push({ ...candidate, started: await candidate.start(services) })
    for (const [at, size] of sizes.entries()) {
      const orders = running.map((candidate) => ({
        ...{ services, candidate, size, kind, say },
        requests: requestsOf(candidate.started, size, services.ourCookies ?? ['session=none']),
      }))
      const warmupSeconds = options.warmupSeconds * (at === 0 ? 1 : FURTHER_WARMUP)
      for (const order of orders) await warmUp(order, warmupSeconds)
      for (const [name, result] of await inTurns(orders, options.seconds)) {
        say(`${size.kilobytes} KB, round ${round}: ${name} ${summary(result)}`)
        results[at].get(name).push(result)
      }
    }
    for (const { started } of running) await started.stop()
  }
  return results
}

async function warmUp(order, seconds) {
  await checkAnswer(order)
  // An empty cache is no error yet.
  await measure({ ...order, candidate: { ...order.candidate, check: undefined }, seconds })
}

/** The result of each candidate, by name. */
async function inTurns(orders, seconds) {
  const turns = turnsOf(seconds)
  const loads = new Map(orders.map(({ candidate }) => [candidate.name, []]))
  for (let turn = 1; turn <= turns; turn += 1)
    for (const order of orders)
      loads.get(order.candidate.name).push(await measure({ ...order, seconds: seconds / turns }))
  return [...loads].map(([name, each]) => [name, resultOf(each)])
}

/** How many turns a load of so many seconds has. */
export function turnsOf(seconds) {
  return Math.max(1, Math.round(seconds / TURN_SECONDS))
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

function summary({ perSecond, cpu, redisCommands }) {
  const micros = cpu === null ? 'CPU unknown' : `${cpu.toFixed(1)} µs CPU`
  return `${Math.round(perSecond)}/s, ${micros}, ${redisCommands.toFixed(2)} Redis commands`
}
