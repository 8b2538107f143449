// A candidate under HTTP load, as compare.mjs wants it, and what each load cost.
import { signInMany } from './browser.mjs'
import { total } from './compare.mjs'
import { runLoad } from './load/load.mjs'
import { cpuOf, memoryOf } from './machine.mjs'
import { say } from './page.mjs'

/** On a busy machine a short load may be over before its first response. */
const SILENT = 'no responses at all'
const REPEATS_IF_SILENT = 5

/** So many Redis commands for each call show that calls ask Redis. */
const ASKS_REDIS = 0.9

/**
 * Starts a candidate and signs `browsers` in. `requestsOf(cookies)` lists the requests; `shape` goes to `runLoad`, but for
 * the warm-up, which is as fast as responses come. `checksRedis`: a load with more or fewer commands than `asksRedis`
 * promises is wrong.
 */
export async function putUnderLoad(services, candidate, { browsers, requestsOf, shape, checksRedis }) {
  const started = await candidate.start(services)
  const cookies = await cookiesOf(services, { candidate, started, browsers })
  const requests = requestsOf(cookies)
  const { connections } = shape
  const run = (more) => measure(services, { candidate, started, requests, ...more })
  return {
    warmUp: (seconds) => run({ shape: { connections, seconds } }),
    load: (seconds) => run({ shape: { ...shape, seconds }, checksRedis }),
    stop: started.stop,
  }
}

/** Replicas of one candidate know the browsers of each other. Candidates without sessions receive the same bytes. */
async function cookiesOf({ cookies, publicUrl }, { candidate: { name, signInPath }, started, browsers }) {
  if (started.cookies !== undefined) return started.cookies
  if (signInPath === undefined) return cookies.get('ours') ?? Array(browsers).fill('session=none')
  const kind = name.replace(/^(ours).*|-again$/, '$1')
  const home = kind === 'ours' ? publicUrl : started.url
  if (!cookies.has(kind)) cookies.set(kind, await signInMany(home + signInPath, browsers))
  return cookies.get(kind)
}

/** What one load cost: CPU in microseconds. A load with a fault is repeated: a single broken connection is tolerated. */
async function measure(services, order, repeated = 0) {
  const load = await measureOnce(services, order)
  const { fault } = load
  if (fault === null) return load
  if (repeated >= (fault === SILENT ? REPEATS_IF_SILENT : 1))
    throw new Error(`${order.candidate.name}: ${fault}`)
  say(`${order.candidate.name}: ${fault}; repeating it`)
  return await measure(services, order, repeated + 1)
}

async function measureOnce(services, { candidate, started: { pid, url }, requests, shape, checksRedis }) {
  const before = { ...(await services.counts()), redis: await services.store.commands(), cpu: cpuOf(pid) }
  const outcome = await runLoad({ processes: services.processes, url, requests, ...shape })
  const cpu = cpuOf(pid) - before.cpu
  const redis = (await services.store.commands()) - before.redis
  const { served } = await services.counts()
  const { requests: count } = outcome
  const redisFault = checksRedis ? redisFaultOf(candidate, redis / count) : null
  const fault = faultOf(outcome, served - before.served) ?? redisFault
  return { ...outcome, count, cpu, redis, peak: memoryOf(pid, 'VmHWM'), fault }
}

/** Why a load is invalid, or null. A redirect, or a page of the candidate itself, did not come from upstream. */
export function faultOf({ requests, failed }, served) {
  if (requests === 0) return SILENT
  if (failed > 0) return `${failed} of ${requests} responses were errors`
  return served < requests ? `${requests - served} of ${requests} responses did not come from upstream` : null
}

function redisFaultOf({ asksRedis }, each) {
  if (asksRedis === undefined || asksRedis === each > ASKS_REDIS) return null
  return `${each.toFixed(2)} Redis commands a call`
}

/** The figures of the loads of one candidate in one round, for compare.mjs; CPU in microseconds for each call. */
export function figuresOfLoads(loads) {
  const count = total(loads, 'count')
  const perSecond = count / total(loads, 'seconds')
  const [cpu, redis] = ['cpu', 'redis'].map((key) => total(loads, key) / count)
  const { p50, p99, peak } = loads.at(-1)
  return { perSecond, cpu, redis, p50, p99, peak }
}
