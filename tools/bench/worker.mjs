// Uses the server's own store without the server, see startWorker. The environment is that of a replica. Each message is
// one job, `{ job, ... }`; the worker sends back its result. Runs with tsx, which loads the server's own files.
import { randomBytes } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { SYSTEM_CLOCK as clock } from '../../src/clock.ts'
import { parseConfig } from '../../src/config/config.ts'
import { createSessionCookies, DEVICE_COOKIE } from '../../src/http/cookies.ts'
import { createKeyring } from '../../src/keyring.ts'
import { createAuthorizationClient } from '../../src/oauth/client.ts'
import { Secret } from '../../src/secret.ts'
import { createBinding } from '../../src/vault/binding.ts'
import { openTokens, sealTokens } from '../../src/vault/session.ts'
import { createRedisStore } from '../../src/vault/store/redis/store.ts'

const AT_ONCE = 64
/** For `libraries`. */
const SESSIONS = 512
const HOUR_MS = 3_600_000
/** No session that is filled in comes due during a run. */
const FILLED_MS = 24 * HOUR_MS

const parsed = parseConfig(process.env)
if (!parsed.ok) throw new Error(parsed.faults.join('\n'))
const { oauth, egress, session, sessionSecrets, publicUrl, store: storeConfig } = parsed.config
const keyring = createKeyring(sessionSecrets)
const cookies = createSessionCookies({ keyring, publicUrl, secure: publicUrl.startsWith('https:') })
/** Its clock is ahead, so that a device cookie outlives a run. */
const binding = createBinding({ keyring, publicUrl, now: () => clock.wall() + FILLED_MS })
const authorizationClient = createAuthorizationClient({ oauth, egress, concurrency: AT_ONCE, clock })
const store = createRedisStore({
  ...storeConfig,
  idleMs: session.idleSeconds * 1_000,
  onRefused(message) {
    throw new Error(message)
  },
  onUnreachable() {},
  onReachable() {},
  observe() {},
})

const JOBS = { fill, libraries, enqueue }
process.on('message', async ({ job, ...order }) => process.send((await JOBS[job](order)) ?? null))
process.on('disconnect', () => process.exit(0))

// Calls to the store fail until its connection is open.
while (await store.ping().catch(() => true)) await pause(50)
console.log('ready')

/** Due sessions that are not in the queue. */
const due = []

/** Puts the sessions that were filled in `asDue` into the queue. */
async function enqueue() {
  while (due.length > 0) await store.scheduleMissing(due.splice(-1_000).map((key) => ({ key, inMs: 0 })))
}

/**
 * Stores so many sessions. Returns the cookies of `keep` of them, spread over all. `asDue`: nobody refreshes them before
 * `enqueue`. `bound`: each is bound to a device, whose cookie outlives the run.
 */
async function fill({ count, keep = 0, asDue = false, bound = false }) {
  const kept = []
  const every = Math.max(1, Math.floor(count / keep))
  await inLanes(count, async (at) => {
    // On a busy machine a command may have no reply in time.
    let stored = null
    while (stored === null) stored = await signedIn(asDue ? 0 : FILLED_MS, bound).catch(() => null)
    if (at % every === 0 && kept.length < keep) kept.push(stored.cookie)
  })
  return kept
}

/** A session as after a sign-in, with an access token of 800 characters that is due in so many milliseconds. */
async function signedIn(dueMs, bound = false) {
  const signed = cookies.sign(cookies.newSessionId())
  const { recordKey: key } = cookies.verify(signed)
  const createdAt = Date.now()
  const tokens = sealTokens(keyring, key, {
    accessToken: new Secret(randomBytes(600).toString('base64url')),
    refreshToken: new Secret(randomBytes(48).toString('base64url')),
    lifeSeconds: HOUR_MS / 1_000,
    expiresAt: createdAt + dueMs + 60_000,
  })
  const endsAt = createdAt + session.maxSeconds * 1_000
  await store.create(key, { tokens, createdAt, endsAt, flow: 'code', client: oauth.clientId }, 60_000)
  await store.confirm(key)
  if (dueMs === 0) due.push(key)
  else await store.schedule(key, dueMs)
  const cookie = `${cookies.sessionName}=${signed}`
  if (!bound) return { key, cookie }
  // No call looks at the key.
  const device = randomBytes(64).toString('base64url')
  await store.registerDevice(key, device)
  await store.bindDevice(key, device)
  return { key, cookie: `${cookie}; ${DEVICE_COOKIE}=${binding.cookie(key).value}` }
}

const keys = []

/**
 * What no server over these libraries can save in a refresh: the record read and opened, the lease, the token request,
 * the new tokens sealed and stored. Nothing is shared, timed, counted or tried again, and nothing planned unless it is
 * `queued`. Returns the number and their CPU in microseconds.
 */
async function libraries({ count, queued }) {
  const lease = { leaseMs: 20_000, openMs: 30_000, livesMs: 0, forcedWindowMs: 0 }
  const bounds = () => ({ sendBefore: clock.monotonic() + 10_000, signal: new AbortController().signal })
  if (keys.length === 0) await inLanes(SESSIONS, async () => keys.push((await signedIn(FILLED_MS)).key))
  const before = process.cpuUsage()
  await inLanes(count, async (at, lane) => {
    // No other lane has this session.
    const key = keys[(at * AT_ONCE + lane) % SESSIONS]
    const { gen, tokens: sealed } = await store.read(key)
    const opened = openTokens(keyring, key, sealed)
    const attempt = String(at)
    const begun = await store.beginRefresh(key, { gen, attempt, ...lease })
    const outcome = await authorizationClient.refresh(opened.tokens.refreshToken, bounds())
    if (begun.kind !== 'granted' || outcome.kind !== 'granted') throw new Error('not granted')
    await store.replaceTokens(key, { gen, tokens: sealTokens(keyring, key, outcome.tokens) })
    if (queued) await store.schedule(key, FILLED_MS)
  })
  const { user, system } = process.cpuUsage(before)
  return { count, cpu: user + system }
}

/** Runs `work` for 0 to `count` - 1, so many at a time. */
async function inLanes(count, work) {
  let next = 0
  const run = async (_, lane) => {
    while (next < count) await work(next++, lane)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, run))
}
