import t, { type Test } from 'tap'
import type { Browser } from '../helpers/browser.ts'
import { startRedis } from '../helpers/redis.ts'
import { type Bff, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed, through } from '../tokens/world.ts'

/** What a change may take to be seen by every replica. */
const BOUND_MS = 200
const ROUND_MS = 6_000
const USERS = 4

interface Call {
  /** Stands in the path, so that the resource server's journal knows the call. */
  flux: string
  /** Epoch milliseconds, as in the journal. */
  sentAt: number
}

/** One session from its sign-in to a while after its end. */
interface Life {
  browser: Browser
  calls: Call[]
  leaving: boolean
  /** When its sign-out was answered, and where. */
  ended: { at: number; by: Bff } | null
}

/** Numbers in [0, 1) that follow from a seed alone. */
function randomFrom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

for (const [seed, killing] of [
  [1, false],
  [2, true],
  [3, true],
] as const) {
  const cut = killing ? ', with subscribers cut off now and then' : ''
  t.test(`nobody reads what is over by more than ${BOUND_MS} ms${cut} (seed ${seed})`, (t) =>
    hunt(t, seed, killing),
  )
}

async function hunt(t: Test, seed: number, killing: boolean): Promise<void> {
  const random = randomFrom(seed)
  const redis = await startRedis(t)
  // Each session is refreshed about every two seconds.
  const sandbox = await startSandbox(t, { tokenLifeSeconds: 3, journalSize: 100_000 })
  const replicas = [
    await startBff(t, sandbox, { REDIS_URL: redis.url }),
    await startBff(t, sandbox, { REDIS_URL: redis.url }),
  ]
  await Promise.all(replicas.map(untilReady))
  const pick = (): Bff => replicas[Math.floor(random() * replicas.length)]!
  const lives: Life[] = []
  const until = Date.now() + ROUND_MS
  let made = 0

  async function call(life: Life): Promise<void> {
    const replica = pick()
    made += 1
    const { leaving, ended } = life
    const one = { flux: `flux-${made}-end`, sentAt: Date.now() }
    const { status } = await through(replica, life.browser).fetch(`/flux/${one.flux}`)
    life.calls.push(one)
    const seenFrom =
      ended === null ? Number.POSITIVE_INFINITY : ended.at + (ended.by === replica ? 0 : BOUND_MS)
    if (status === 200 && one.sentAt > seenFrom)
      t.fail(`a call was served ${one.sentAt - ended!.at} ms after the sign-out`)
    if (status === 401 && !leaving && !life.leaving) t.fail('a session was lost')
    if (![200, 401, 503].includes(status)) t.fail(`a call was answered ${status}`)
  }

  async function keepCalling(life: Life, untilThen: () => boolean): Promise<void> {
    while (!untilThen()) {
      await call(life)
      await elapsed(random() * 30)
    }
  }

  async function live(): Promise<void> {
    const life: Life = { browser: pick().browser(), calls: [], leaving: false, ended: null }
    lives.push(life)
    await signIn(life.browser, sandbox)
    const leavesAt = Date.now() + 500 + random() * 4_500
    const quietAt = (): boolean => life.ended !== null && Date.now() > life.ended.at + 2 * BOUND_MS
    const callers = [keepCalling(life, quietAt), keepCalling(life, quietAt)]
    await elapsed(leavesAt - Date.now())
    life.leaving = true
    const by = pick()
    const { status } = await through(by, life.browser).fetch('/auth/logout', { method: 'POST' })
    if (status !== 204) t.fail(`a sign-out was answered ${status}`)
    life.ended = { at: Date.now(), by }
    await Promise.all(callers)
  }

  const users = Array.from({ length: USERS }, async () => {
    while (Date.now() < until) await live()
  })
  const killer = (async () => {
    while (killing && Date.now() < until) {
      await elapsed(random() * 1_500)
      await redis.cli('client', 'kill', 'type', 'pubsub')
    }
  })()
  await Promise.all([...users, killer])

  const tokens = new Map<string, { token: string; at: number }>()
  for (const { path, headers, at } of sandbox.journal.entries({ endpoint: 'resource' })) {
    const flux = /flux-\d+-end/.exec(path)?.[0]
    if (flux !== undefined && !tokens.has(flux))
      tokens.set(flux, { token: String(headers.authorization), at })
  }
  let replaced = 0
  for (const { calls } of lives) {
    const used = calls
      .flatMap(({ flux, sentAt }) => {
        const seen = tokens.get(flux)
        return seen === undefined ? [] : [{ ...seen, sentAt }]
      })
      .sort((a, b) => a.at - b.at)
    /** In the order of their first use; each is used many times before the next one. */
    const firstUse = new Map<string, number>()
    for (const { token, at } of used) if (!firstUse.has(token)) firstUse.set(token, at)
    replaced += Math.max(0, firstUse.size - 1)
    for (const { token, sentAt } of used) {
      const newer = [...firstUse.values()].find((at) => at > firstUse.get(token)!)
      if (newer !== undefined && sentAt > newer + BOUND_MS)
        t.fail(`a call brought an access token ${sentAt - newer} ms after the next one was used`)
    }
  }
  t.ok(lives.length > USERS, `${lives.length} sessions`)
  t.ok(replaced > USERS, `${replaced} access tokens were replaced in ${tokens.size} calls`)
  t.equal(sandbox.counters().reuseDetected, 0)
}
