import type { Test } from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import type { Answer, Browser } from '../helpers/browser.ts'
import type { Teardown } from '../helpers/child.ts'
import type { RedisServer } from '../helpers/redis.ts'
import { presentations, signInExpired, startReplicas, through } from '../helpers/replicas.ts'
import { storedRecord } from '../helpers/stored-record.ts'
import { type Bff, metricsOf, signInSurely, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'

const PAUSE_MS = 300

const LIFE_SECONDS = 5

/** A timer may fire as much too early. */
const TIMER_MS = 50
/** Within this time after a failover the replicas have found the new master, and the reads that wait have asked again. */
const FOUND_MS = 2_000
/** How a read is answered that has waited for Redis as long as it may. */
const WAITED = '503 store_unavailable after the wait'
/** That of a session whose token has expired, while refreshes are paused after a failover. */
const PAUSED = '503 authorization_server_unavailable'

/** Tokens that do not expire meanwhile, and the longest wait: a busy machine takes seconds for a failover. */
export const PATIENT = { tokenLifeSeconds: 3_600, storeWaitMs: 10_000 }

/** Two replicas over this Redis, whose tokens live five seconds, and browsers that have signed in and call all the time. */
export async function startPair(
  t: Teardown,
  env: Record<string, string>,
  sessions: number,
  { tokenLifeSeconds = LIFE_SECONDS, storeWaitMs = 4_000 } = {},
) {
  const sandbox = await startSandbox(t, { tokenLifeSeconds })
  const whole = { ...env, STORE_WAIT_MS: String(storeWaitMs) }
  const replicas = [await startBff(t, sandbox, whole), await startBff(t, sandbox, whole)]
  await Promise.all(replicas.map(untilReady))
  const browsers = Array.from({ length: sessions }, (_, at) => replicas[at % 2]!.browser())
  for (const browser of browsers) await signInSurely(browser, sandbox)
  const load = startLoad(browsers, replicas, storeWaitMs)
  await load.untilAllServed()
  return { sandbox, replicas, browsers, load }
}

/** Readers whose tokens are valid see no error in a failover, unless it takes longer than they wait for Redis. */
export async function isAPause(
  t: Test,
  { load }: { load: ReturnType<typeof startLoad> },
  failover: () => Promise<void>,
): Promise<void> {
  load.mark()
  const began = performance.now()
  await failover()
  const isLonger = performance.now() - began + FOUND_MS > load.storeWaitMs
  await load.untilAllServed()
  await load.stop()
  t.strictSame(
    load.answers().filter((kind) => !isLonger || kind !== WAITED),
    ['200'],
  )
}

/**
 * A failover under this load presents no refresh token twice and signs nobody out. A 503 comes only after `STORE_WAIT_MS`, or
 * where a token has expired meanwhile.
 */
export async function survives(
  t: Test,
  { sandbox, load }: { sandbox: Sandbox; load: ReturnType<typeof startLoad> },
  failover: () => Promise<void>,
): Promise<void> {
  t.strictSame(load.answers(), ['200'], 'before')
  load.mark()
  await failover()
  await load.untilAllServed()
  const meanwhile = load.answers().filter((kind) => kind !== WAITED && kind !== PAUSED)
  t.strictSame(meanwhile, ['200'], 'meanwhile')

  load.mark()
  await elapsed(LIFE_SECONDS * 1_000)
  await load.stop()
  t.strictSame(load.answers(), ['200'], 'after')
  t.equal(sandbox.counters().reuseDetected, 0)
  t.equal(presentedAgain(sandbox), 0, 'no refresh token was presented twice')
}

/** Sessions that call all the time, each through every replica in turn. */
function startLoad(browsers: Browser[], replicas: Bff[], storeWaitMs: number) {
  let seen = new Set<string>()
  let served = new Set<string>()
  let round = 0
  let stopped = false

  async function call(session: number): Promise<void> {
    const ways = replicas.map((replica) => through(replica, browsers[session]!))
    for (let turn = session; !stopped; turn += 1) {
      const way = turn % ways.length
      const began = round
      const startedAt = performance.now()
      const answer = await ways[way]!.fetch('/flux/temperature')
      const ms = performance.now() - startedAt
      const kind = kindOf(answer, ms >= storeWaitMs - TIMER_MS)
      if (began === round) {
        seen.add(kind)
        if (kind === '200') served.add(`${session} ${way}`)
      }
      await elapsed(PAUSE_MS)
    }
  }

  const calls = Promise.all(browsers.map((_, session) => call(session)))

  function mark(): void {
    round += 1
    seen = new Set()
    served = new Set()
  }

  return {
    storeWaitMs,
    /** What the calls that began after the last `mark` were answered, by status, as `200` or `503 store_unavailable`. */
    answers: () => [...seen].sort(),
    mark,
    /** Resolves when every session has been served by every replica, by calls that begin from now on. */
    async untilAllServed() {
      const before = seen
      mark()
      const all = browsers.length * replicas.length
      await until('all sessions are served', () => served.size === all)
      for (const kind of before) seen.add(kind)
    },
    async stop() {
      stopped = true
      await calls
    },
  }
}

/** Replicas, a session whose refresh has reached the authorization server, which holds its response, and the call that waits. */
export async function startHeldRefresh(t: Teardown, env: Record<string, string> = {}) {
  const started = await startReplicas(t, env)
  const { sandbox, replicas } = started
  const browser = await signInExpired(replicas[0], sandbox)
  const gate = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
  const waiting = browser.fetch('/flux/temperature')
  await gate.arrived
  return { ...started, browser, elsewhere: through(replicas[1], browser), gate, waiting }
}

/** Resolves when each session on this node has got new tokens, counted from now. */
export async function untilAllRefreshed(node: Pick<RedisServer, 'cli'>): Promise<void> {
  const before = await generations(node)
  if (before.size === 0) throw new Error('the node has no session')
  await until('each session has new tokens', async () => {
    const now = await generations(node)
    return [...before].every(([name, generation]) => (now.get(name) ?? 0) > generation)
  })
}

async function generations(node: Pick<RedisServer, 'cli'>): Promise<Map<string, number>> {
  const names = await sessionsOn(node)
  const found = names.map(async (name) => [name, (await storedRecord(node, name))?.gen ?? 0] as const)
  return new Map(await Promise.all(found))
}

/** The names of the session records on this node. */
export async function sessionsOn(node: Pick<RedisServer, 'cli'>): Promise<string[]> {
  return (await node.cli('keys', 'bff:s:*')).split('\n').filter((name) => name !== '')
}

/** Refresh tokens that were presented more than once. */
export function presentedAgain(sandbox: Sandbox): number {
  const sent = presentations(sandbox).map(({ form }) => form?.refresh_token)
  return sent.length - new Set(sent).size
}

/** The sum of a counter with these labels over the replicas. */
export async function counted(replicas: Bff[], name: string): Promise<number> {
  const lines = (await Promise.all(replicas.map(metricsOf))).flatMap((text) => text.split('\n'))
  const found = lines.filter((line) => line.startsWith(`${name} `))
  return found.reduce((sum, line) => sum + Number(line.slice(name.length + 1)), 0)
}

function kindOf(answer: Answer, hasWaited: boolean): string {
  if (answer.status === 200) return '200'
  const kind = `${answer.status} ${answer.json().code}`
  return kind === '503 store_unavailable' && hasWaited ? WAITED : kind
}
