// Latency of this server while it is disturbed: by a background refresh, a failover, a rolling restart.
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { startOurs } from '../candidates/ours.mjs'
import { startAtRate } from '../load/at-rate.mjs'
import { now, percentilesOf } from '../load/samples.mjs'
import { freePort } from '../processes.mjs'
import { callsOf, capacityOf } from './candidates.mjs'
import { chooseFront, startFront } from './front.mjs'
import { startSentinelGroup } from './sentinel-group.mjs'

const DUE_SESSIONS = fileURLToPath(new URL('due-sessions.mjs', import.meta.url))
/** A load ends after the disturbance. This is its longest length. */
const MAX_SECONDS = 120
const REFRESH_MS = 60_000
/** How long it may take to store a session, and then to start the load, before all come due. */
const FILL_EACH_MS = 0.6
const LOAD_START_MS = 3_000
/** All sessions come due within a fifth of this. */
const AHEAD_SECONDS = 5
/** HAProxy leaves a stopping replica within about 1.5 seconds. */
const DRAIN_SECONDS = 3
/** HAProxy sends requests to a new replica, or the server follows a promotion, within this time. */
const FOLLOW_MS = 2_000

export const SCENARIOS = {
  refresh,
  failover,
  restart,
}

/**
 * Runs the scenario `name`. Returns `{title, rate, windows}`: before, during and after, each with `seconds`,
 * `requests`, the `failed` ones by status, `latency` of the others, and `late`, the delay of the load generator.
 * null: a program that it needs is not installed.
 */
export async function runScenario(services, name, options) {
  // Sign-ins of its own: each scenario has its own store or prefix.
  const own = { ...services, publicUrl: undefined, ourCookies: undefined }
  return await SCENARIOS[name](own, options)
}

async function refresh(services, options) {
  const { count, calmSeconds } = options
  const tokenUrl = `${services.upstreamUrl}/oauth/token`
  const prefix = 'latency-refresh:'
  const env = { REFRESH_AHEAD_SECONDS: String(AHEAD_SECONDS) }
  const started = await startOurs(services, {
    env: { ...env, REDIS_PREFIX: prefix, OAUTH_TOKEN_URL: tokenUrl },
  })
  const rate = await rateOf(services, started, options)
  const { granted } = await services.counts()
  const calmMs = calmSeconds * 1_000
  const leadMs = FILL_EACH_MS * count + LOAD_START_MS + calmMs
  const settings = { redisPort: services.redisPort, tokenUrl, prefix, env }
  const orders = { ...settings, count, leadMs, aheadSeconds: AHEAD_SECONDS }
  const fill = await services.processes.start(process.execPath, [DUE_SESSIONS, JSON.stringify(orders)], {
    core: 'load',
    ready: /filled, due at \d+/,
    readyMs: 600_000,
  })
  await fill.stop()
  const dueAt = Number(/due at (\d+)/.exec(fill.output())[1])
  await pause(dueAt - Date.now() - calmMs - LOAD_START_MS)
  const windows = await underLoad(services, { started, rate, options }, () =>
    untilGranted(services, granted, count),
  )
  await started.stop()
  return { title: `a background refresh of ${count.toLocaleString('en')} sessions`, rate, windows }
}

/** Resolves with the begin and the end of so many token requests. */
async function untilGranted(services, before, count) {
  const deadline = now() + REFRESH_MS
  let begin = now()
  for (;;) {
    const seen = now()
    const { granted } = await services.counts()
    if (granted === before) begin = seen
    if (granted >= before + count) return { begin, end: now() }
    if (seen > deadline)
      throw new Error(`${granted - before} of ${count} sessions were refreshed in a minute`)
    await pause(20)
  }
}

async function failover(services, options) {
  const group = await startSentinelGroup(services)
  const started = await startOurs(services, { env: { REDIS_URL: group.url } })
  const rate = await rateOf(services, started, options)
  const windows = await underLoad(services, { started, rate, options }, async () => {
    const begin = now()
    await group.killMaster()
    const promoted = now()
    await pause(FOLLOW_MS)
    return { begin, end: promoted, andFailures: true }
  })
  await started.stop()
  return { title: 'a failover: the Redis master is killed, Sentinel promotes its replica', rate, windows }
}

async function restart(services, options) {
  const name = chooseFront()
  if (name === null) return null
  const env = { SHUTDOWN_DELAY_SECONDS: String(DRAIN_SECONDS), REDIS_PREFIX: 'latency-restart:' }
  const replicas = []
  for (let each = 0; each < 2; each += 1) {
    const ports = { port: await freePort(), opsPort: await freePort() }
    replicas.push({ ports, started: await startOurs(services, { env, ports }) })
  }
  const [{ started }] = replicas
  const rate = await rateOf(services, started, options)
  const allPorts = replicas.map(({ ports }) => ports)
  const front = { ...started, url: await startFront(services, name, allPorts) }
  const windows = await underLoad(services, { started: front, rate, options }, async () => {
    const begin = now()
    for (const replica of replicas) {
      await replica.started.stop()
      replica.started = await startOurs(services, { env, ports: replica.ports })
      await pause(FOLLOW_MS)
    }
    return { begin, end: now() }
  })
  for (const replica of replicas) await replica.started.stop()
  return { title: `a rolling restart of two replicas on one core, behind ${name}`, rate, windows }
}

async function rateOf(services, started, options) {
  return ((await capacityOf(services, started, options)) * options.during) / 100
}

/**
 * Loads a server at a rate, and for some seconds before and after `disturb`, which resolves with its begin and end.
 * `andFailures`: the last failed response ends it, if that is later.
 */
async function underLoad(services, { started, rate, options }, disturb) {
  const shape = {
    leadRate: rate,
    url: started.url,
    requests: callsOf(services, started),
    rate,
    seconds: MAX_SECONDS,
  }
  const load = await startAtRate(services, shape)
  await pause(options.calmSeconds * 1_000)
  const { begin, end, andFailures = false } = await disturb()
  await pause(options.calmSeconds * 1_000)
  const { samples } = await load.stop()
  const lastFailure = samples.findLast(isFailed)?.due ?? 0
  const over = andFailures ? Math.max(end, lastFailure + 1) : end
  // A request that was under way when the disturbance began belongs to it.
  const isBefore = ({ due, latency }) => due + latency < begin
  const isAfter = ({ due }) => due >= over
  return {
    before: windowOf(samples.filter(isBefore), begin - samples[0].due),
    during: windowOf(
      samples.filter((each) => !isBefore(each) && !isAfter(each)),
      over - begin,
    ),
    after: windowOf(samples.filter(isAfter), samples.at(-1).due - over),
  }
}

function windowOf(inside, milliseconds) {
  const failed = {}
  for (const { status } of inside.filter(isFailed)) failed[status] = (failed[status] ?? 0) + 1
  const good = inside.filter((each) => !isFailed(each))
  return {
    seconds: milliseconds / 1_000,
    requests: inside.length,
    failed,
    latency: percentilesOf(good.map(({ latency }) => latency)),
    late: percentilesOf(inside.map(({ late }) => late)),
  }
}

function isFailed({ status }) {
  return status < 200 || status > 299
}
