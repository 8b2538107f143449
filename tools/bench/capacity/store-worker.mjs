// Uses the store through the server's own code, in a separate process. Started with JSON:
// `{redisPort, tokenUrl, prefix, env}`, the port of one master. Each message `{name, ...}` is one job. The worker sends back its result.
import { randomBytes, randomUUID } from 'node:crypto'
import { forEach, newTokens, openStore, sealTokens } from '../refresh/sessions.mjs'

const settings = JSON.parse(process.argv[2])
const { config, keyring, store } = openStore(settings)
const maxMs = config.session.maxSeconds * 1_000
const clientId = config.oauth.clientId

/** An access token of 1200 characters and a refresh token of 64. */
const seal = (key) => sealTokens(keyring, key, newTokens(3_600, 900))
const AT_ONCE = 256
const SAMPLE = 20_000
const LEASE_MS = 15_000
const OPEN_MS = 30_000
const CLAIM_AT_MOST = 64
/** No session becomes due during the run. */
const DUE_FROM_MS = 1_200_000
const DUE_WITHIN_MS = 3_600_000

/** Keys of the sessions to use, spread over all sessions. */
const keys = []

const ORDERS = { fill, claimDue, time, refreshes }

process.on('message', async ({ name, ...order }) => {
  try {
    process.send({ result: (await ORDERS[name](order)) ?? null })
  } catch (error) {
    process.send({ fault: String(error?.cause ?? error) })
  }
})
process.on('disconnect', () => process.exit(0))

while (
  !(await store.ping().then(
    () => true,
    () => false,
  ))
)
  await new Promise((resolve) => setTimeout(resolve, 50))
console.log('ready')

async function fill({ sessions }) {
  const every = Math.max(1, Math.floor(sessions / SAMPLE))
  let filled = 0
  await forEach(sessions, AT_ONCE, async (at) => {
    const key = randomBytes(32).toString('hex')
    // On a busy machine a command may have no reply in time; each of them may run twice.
    while (!(await signIn(key))) {}
    if (at % every === 0) keys.push(key)
    filled += 1
    if (filled % 50_000 === 0) process.send({ progress: filled })
  })
}

/** The commands of a sign-in: queue entry, record, confirmation. Returns false if Redis was too slow. */
async function signIn(key) {
  const at = Date.now()
  const record = { tokens: seal(key), createdAt: at, endsAt: at + maxMs, flow: 'code', client: clientId }
  try {
    await store.schedule(key, DUE_FROM_MS + Math.random() * DUE_WITHIN_MS)
    await store.create(key, record, 60_000)
    await store.confirm(key)
    return true
  } catch (error) {
    if (error.code === 'store_unavailable') return false
    throw error
  }
}

/** Makes so many sessions due and claims them all. Returns the milliseconds of each claim that returned any. */
async function claimDue({ due }) {
  await forEach(due, AT_ONCE, (each) => store.schedule(keys[each], 0))
  const took = []
  let claimed = 0
  for (;;) {
    const startedAt = performance.now()
    const { entries } = await store.claimDue(CLAIM_AT_MOST, LEASE_MS)
    if (entries.length === 0) break
    claimed += entries.length
    took.push(performance.now() - startedAt)
  }
  if (claimed !== due) throw new Error(`${claimed} sessions were claimed of ${due}`)
  return { took }
}

/** Milliseconds of each of `calls` sequential calls. */
async function time({ what, calls }) {
  const steps = {
    read: (at) => store.read(keys[at % keys.length]),
    queueLength: () => store.queueLength(),
    claimDue: () => store.claimDue(CLAIM_AT_MOST, LEASE_MS),
  }
  const took = []
  for (let at = 0; at < calls; at += 1) {
    const startedAt = performance.now()
    await steps[what](at)
    took.push(performance.now() - startedAt)
  }
  return { took }
}

/** The commands of a refresh, for so many sessions at a time. Returns the milliseconds of each `replaceTokens`. */
async function refreshes({ calls, atOnce }) {
  const took = []
  await forEach(calls, atOnce, async (at) => {
    const key = keys[at % keys.length]
    const attempt = randomUUID()
    const { gen } = await store.read(key)
    const begun = await store.beginRefresh(key, {
      gen,
      attempt,
      leaseMs: LEASE_MS,
      livesMs: 0,
      forcedWindowMs: 0,
      openMs: OPEN_MS,
    })
    if (begun.kind !== 'granted') throw new Error(`the lease is ${begun.kind}`)
    const tokens = seal(key)
    const startedAt = performance.now()
    const replaced = await store.replaceTokens(key, { gen, attempt, tokens })
    took.push(performance.now() - startedAt)
    if (replaced.kind !== 'replaced') throw new Error(`the tokens are ${replaced.kind}`)
    await store.schedule(key, DUE_FROM_MS + Math.random() * DUE_WITHIN_MS)
  })
  return { took }
}
