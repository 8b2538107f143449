import { setTimeout as pause } from 'node:timers/promises'
import type { SandboxUser } from '../../sandbox/settings.ts'
import type { Teardown } from '../../test/helpers/child.ts'
import { CLIENT, platformEnv, startSandbox } from '../../test/helpers/system.ts'
import { PASSWORD, PUBLIC_URL, startBrowsers } from './browsers.ts'
import { check, SHUTDOWN_SECONDS, TOKEN_LIFE_SECONDS, TOKEN_TIMEOUT_MS, type Verdict } from './checks.ts'
import { type FaultContext, KINDS, type PlannedFault, planRound } from './faults.ts'
import { startFleet } from './fleet.ts'
import { at, type Clock, createHistory, type Fault, type History, type Mode } from './history.ts'
import { startRedisUnderTest } from './redis.ts'
import { readJournal, startTokenGateway, type TokenGateway } from './token-gateway.ts'

interface CampaignOptions {
  readonly mode: Mode
  readonly seed: number
  /** No round begins after this. */
  readonly lengthMs: number
  readonly browsers: number
  /** Length of the time with faults in each round. */
  readonly roundMs: number
  /** Only these faults; default: all. */
  readonly only?: readonly string[]
  /** Called after each round: whether to end early. */
  readonly isStopped?: () => boolean
  /** Prints one progress line. */
  readonly print: (line: string) => void
}

const REPLICAS = 3
const SESSION_SECRET = 'the-session-secret-of-the-chaos-campaign'
const SIGN_OUTS_AT_FAULT = 4
/** What has not recovered by then hangs, however slow the machine is. */
const HEALED_WITHIN_MS = 180_000
const UNDONE_ATTEMPTS = 40

/** One campaign in one mode: starts everything, runs rounds of faults, and judges what happened. */
export async function runCampaign(
  t: Teardown,
  options: CampaignOptions,
): Promise<{ history: History; verdict: Verdict }> {
  const { mode, seed, print } = options
  const beganAt = performance.now()
  const clock = (): number => performance.now() - beganAt
  const history = createHistory()
  // The first user owns the client.
  const users: SandboxUser[] = [{ username: 'owner', password: PASSWORD, wacs: [] }]
  const wacs: string[] = []
  const journalSize = 6_000
  const sandbox = await startSandbox(t, { users, wacs, journalSize, tokenLifeSeconds: TOKEN_LIFE_SECONDS })
  const redis = await startRedisUnderTest(t, { mode, replicas: REPLICAS, history, clock })
  const gateways: TokenGateway[] = []
  for (let replica = 0; replica < REPLICAS; replica += 1)
    gateways.push(await startTokenGateway(t, { replica, sandbox, requests: history.tokenRequests, clock }))
  const { replicas, readLogs } = await startFleet(t, {
    ...{ count: REPLICAS, history, clock },
    secrets: [SESSION_SECRET, CLIENT.clientSecret, PASSWORD],
    envOf: (replica) => ({
      ...platformEnv(sandbox),
      PUBLIC_URL,
      OAUTH_TOKEN_URL: `${gateways[replica]!.url}/oauth/token`,
      SESSION_SECRET,
      SESSION_STORE: 'redis',
      REDIS_URL: redis.urlFor(replica),
      TOKEN_TIMEOUT_MS: String(TOKEN_TIMEOUT_MS),
      REFRESH_THRESHOLD_SECONDS: '2',
      SHUTDOWN_SECONDS: String(SHUTDOWN_SECONDS),
      SHUTDOWN_DELAY_SECONDS: '0',
      LOGIN_RATE_PER_MINUTE: '0',
      ACCESS_LOG: 'off',
    }),
  })
  watchStalls(t, history, clock)
  const reading = setInterval(() => readJournal(sandbox, history.tokenRequests), 2_000)
  t.teardown(() => clearInterval(reading))
  const browsers = startBrowsers({
    ...{ count: options.browsers, seed, replicas, sandbox, history, clock },
    addUser(username) {
      users.push({ username, password: PASSWORD, wacs: [username] })
      wacs.push(username)
    },
  })
  const context: FaultContext = { t, replicas, redis, gateways, sandbox }

  await pause(2_500)
  for (let round = 1; round === 1 || (clock() < options.lengthMs && !options.isStopped?.()); round += 1) {
    const { only = Object.keys(KINDS) } = options
    const plan = planRound({ seed, mode, round, replicas: REPLICAS, lengthMs: options.roundMs, only })
    print(`${at(clock())}  round ${round}: ${plan.length} faults`)
    await Promise.all(plan.map(make))
    await heal()
  }

  await browsers.stop()
  // The last check: every process stops in good order.
  await Promise.all(replicas.map((replica) => replica.stop()))
  readJournal(sandbox, history.tokenRequests)
  readLogs()
  return { history, verdict: check(history) }

  /** Makes a planned fault, and undoes it at its end. */
  async function make(planned: PlannedFault): Promise<void> {
    const { name, lastsMs } = planned
    const { strikes, ofAll = false, begin } = KINDS[name]!
    await pause(planned.atMs)
    // Sign-outs are hardest at that moment.
    if (strikes.endsWith('Redis')) browsers.signOutSome(SIGN_OUTS_AT_FAULT)
    const from = clock()
    const begun = await Promise.resolve(planned)
      .then((each) => begin(context, each))
      .catch(String)
    if (begun === null || typeof begun === 'string')
      return print(`${at(from)}  left out: ${name} (${begun ?? 'not possible now'})`)
    const replica = ofAll ? null : planned.replica
    const fault: Fault = { kind: name, strikes, replica, detail: begun.detail ?? '', from, until: null }
    history.faults.push(fault)
    const details = [name, ...(replica === null ? [] : [`replica ${replica}`]), fault.detail].join(' ')
    print(`${at(from)}  ${details}, for ${at(lastsMs)}`)
    await pause(lastsMs)
    await undo(name, begun.end)
    fault.until = clock()
  }

  async function undo(name: string, end: () => unknown): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await end()
        return
      } catch (error) {
        // A node that is being restarted may need a moment.
        if (attempt === UNDONE_ATTEMPTS)
          return finding(`a fault that could not be undone`, `${name}: ${error}`)
        await pause(250)
      }
    }
  }

  /** Waits until Redis is whole again and every living session has been served by every replica. */
  async function heal(): Promise<void> {
    const from = clock()
    browsers.heal(true)
    const isLate = (): boolean => clock() - from > HEALED_WITHIN_MS
    let problem = await redis.problem()
    for (; problem !== null && !isLate(); problem = await redis.problem()) await pause(250)
    if (problem !== null) finding('Redis was not whole again', problem)
    const wholeAt = clock()
    let notServed = notServedSince(from)
    for (; notServed.length > 0 && !isLate(); notServed = notServedSince(from)) await pause(250)
    browsers.heal(false)
    history.healings.push({ from, until: clock(), notServed })
    print(
      `${at(clock())}  healed: Redis is whole after ${at(wholeAt - from)}, all sessions are served after ${at(clock() - from)}`,
    )
  }

  function notServedSince(from: number): string[] {
    const served = new Set<string>()
    for (const { session, replica, sentAt, status } of history.calls.slice(-10_000)) {
      if (sentAt >= from && status === 200) served.add(`${session} ${replica}`)
    }
    const living = browsers.living().filter(({ signedInAt }) => signedInAt < from)
    const isServed = (user: string) => replicas.every(({ index }) => served.has(`${user} ${index}`))
    return living.map(({ user }) => user).filter((user) => !isServed(user))
  }

  function finding(what: string, detail: string): void {
    history.findings.push({ at: clock(), what, detail })
  }
}

function watchStalls(t: Teardown, history: History, clock: Clock): void {
  const everyMs = 50
  let lastAt = clock()
  const timer = setInterval(() => {
    const now = clock()
    const ms = now - lastAt - everyMs
    if (ms > 50) history.stalls.push({ at: now, ms })
    lastAt = now
  }, everyMs)
  t.teardown(() => clearInterval(timer))
}
