// Runs refreshes in a separate process. Started with JSON: `{way, redisPort, tokenUrl, prefix}`.
// Each message `{seconds}` or `{count}` is one job. The worker sends back `{refreshes, seconds, cpu}`; `cpu` is in microseconds.
import { Pool } from 'undici'
import { forEach, openSessions, openTokens, SYSTEM_CLOCK, sealTokens } from './sessions.mjs'

const settings = JSON.parse(process.argv[2])
const AT_ONCE = 64
const SESSIONS = 512

const WAYS = { plain, libraries, request, schedule }
const run = await WAYS[settings.way]()

process.on('message', async (order) => {
  const { refreshes, before, startedAt } = await run(order)
  const { user, system } = process.cpuUsage(before)
  process.send({
    refreshes,
    seconds: (performance.now() - startedAt) / 1_000,
    cpu: user + system,
  })
})
process.on('disconnect', () => process.exit(0))
console.log('ready')

const begin = () => ({ before: process.cpuUsage(), startedAt: performance.now() })

/** 64 concurrent loops of sequential refreshes until the time is over. */
async function lanes(seconds, refresh) {
  const begun = begin()
  const deadline = begun.startedAt + seconds * 1_000
  let refreshes = 0
  const lane = async (first) => {
    for (let at = first; performance.now() < deadline; at += AT_ONCE) {
      await refresh(at)
      refreshes += 1
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, (_, at) => lane(at)))
  return { ...begun, refreshes }
}

/** The minimum of any refresh: one POST over a kept-alive connection, and its JSON. */
async function plain() {
  const { origin, pathname: path } = new URL(settings.tokenUrl)
  const pool = new Pool(origin, { connections: AT_ONCE, pipelining: 1 })
  const body = new URLSearchParams({
    grant_type: 'refresh_token',
    client_id: 'bench',
    client_secret: 'bench-secret',
    refresh_token: 'r'.repeat(64),
  }).toString()
  const headers = { 'content-type': 'application/x-www-form-urlencoded', accept: 'application/json' }
  return ({ seconds }) =>
    lanes(seconds, async () => {
      const answer = await pool.request({ path, method: 'POST', headers, body })
      const { access_token: token } = await answer.body.json()
      if (answer.statusCode !== 200 || token === undefined) throw new Error('not granted')
    })
}

/**
 * What no server over these libraries can save: the record read and opened, the lease, the token request, the new
 * tokens sealed and stored. Nothing is shared, timed, counted, planned or tried again.
 */
async function libraries() {
  const { authorizationServer, keyring, store, signedIn } = openSessions(settings, () => {})
  const keys = []
  await connected(async () => keys.push(await signedIn(0)))
  await forEach(SESSIONS - 1, AT_ONCE, async () => keys.push(await signedIn(0)))
  const lease = { leaseMs: 20_000, openMs: 30_000, livesMs: 0, forcedWindowMs: 0 }
  const bounds = () => ({
    sendBefore: SYSTEM_CLOCK.monotonic() + 10_000,
    signal: new AbortController().signal,
  })
  let attempts = 0
  return ({ seconds }) =>
    lanes(seconds, async (at) => {
      const key = keys[at % SESSIONS]
      const { gen, tokens: sealed } = await store.read(key)
      const { tokens } = openTokens(keyring, key, sealed)
      attempts += 1
      const attempt = String(attempts)
      const begun = await store.beginRefresh(key, { gen, attempt, ...lease })
      const outcome = await authorizationServer.refresh(tokens.refreshToken, bounds())
      if (begun.kind !== 'granted' || outcome.kind !== 'granted') throw new Error('not granted')
      await store.replaceTokens(key, { gen, attempt, tokens: sealTokens(keyring, key, outcome.tokens) })
    })
}

/** Like a request that finds its token due: read the record, take the lease, request, store. */
async function request() {
  const { sessions, tokens, signedIn } = openSessions(settings, () => {})
  const keys = []
  await connected(async () => keys.push(await signedIn(0)))
  await forEach(SESSIONS - 1, AT_ONCE, async () => keys.push(await signedIn(0)))
  return ({ seconds }) =>
    lanes(seconds, async (at) => {
      const found = await sessions.find(keys[at % SESSIONS])
      if (found.kind !== 'live') throw new Error(`the session is ${found.kind}`)
      const access = await tokens.obtainAccessToken(found.session)
      if (access.kind !== 'token' || access.session.record.gen === found.session.record.gen)
        throw new Error('not refreshed')
    })
}

/** Like the background refresh: so many due sessions, claimed from the queue. */
async function schedule() {
  let granted = 0
  let wanted = 0
  let done
  const { tokens, signedIn } = openSessions(settings, (outcome) => {
    if (outcome !== 'granted') throw new Error(outcome)
    granted += 1
    if (granted === wanted) done()
  })
  await connected(() => signedIn(3_600))
  return async ({ count }) => {
    granted = 0
    wanted = count
    await forEach(count, AT_ONCE, () => signedIn(60))
    const all = new Promise((resolve) => {
      done = resolve
    })
    const begun = begin()
    tokens.start()
    await all
    await tokens.stop()
    return { ...begun, refreshes: count }
  }
}

/** Calls to the store fail until its connection is open. */
async function connected(work) {
  for (let tries = 0; ; tries += 1) {
    try {
      return await work()
    } catch (error) {
      if (tries === 100) throw error
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
}
