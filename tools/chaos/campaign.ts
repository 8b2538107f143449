import { createSandbox } from '../../sandbox/sandbox.ts'
import type { SandboxUser } from '../../sandbox/settings.ts'
import type { Teardown } from '../../test/helpers/child.ts'
import { portOfUrl } from '../../test/helpers/ports.ts'
import { elapsed } from '../../test/helpers/wait.ts'
import { PASSWORD, startBrowsers } from './browsers.ts'
import { at, check, type Verdict } from './checks.ts'
import { applyFault, type FaultContext } from './faults.ts'
import { startFleet } from './fleet.ts'
import { createHistory, type History, type Mode } from './history.ts'
import { startLink } from './network.ts'
import { type FaultKind, isOfRedis, planRound } from './plan.ts'
import { createRandom } from './random.ts'
import { startRedisDeployment } from './redis-deployment.ts'
import {
  HEAL_MS,
  MAX_REDIS_CONNECTIONS,
  MAX_TOKEN_CONNECTIONS,
  REPLICAS,
  SESSION_IDLE_SECONDS,
  SHUTDOWN_SECONDS,
  TOKEN_LIFE_SECONDS,
  TOKEN_TIMEOUT_MS,
  UPSTREAM_TIMEOUT_MS,
} from './settings.ts'
import { createTokenRecords, startTokenGateway } from './token-gateway.ts'

interface CampaignOptions {
  readonly mode: Mode
  readonly seed: string
  /** No round begins after this. */
  readonly lengthMs: number
  readonly browsers: number
  /** Length of the time with faults in each round. */
  readonly roundMs: number
  /** Only these faults; default: all. */
  readonly kinds?: readonly FaultKind[]
  /** Called after each round: whether to end early. */
  readonly isStopped?: () => boolean
  /** Prints one progress line. */
  readonly print: (line: string) => void
}

export interface Outcome {
  readonly history: History
  readonly verdict: Verdict
  readonly tookMs: number
  readonly memoryMegabytes: number
}

const CLIENT = {
  clientId: 'chaos-client',
  clientSecret: 'chaos-cl13nt-secret-of-this-run',
  callback: 'http://localhost/',
}
const FIRST_SECRET = 'the-first-session-secret-of-the-chaos-campaign'
const PUBLIC_URL = 'http://localhost:3000'
const STEADY_MS = 30_000
const SIGN_OUTS_AT_FAULT = 4

/** One campaign in one mode: starts everything, runs rounds of faults, and judges what happened. */
export async function runCampaign(t: Teardown, options: CampaignOptions): Promise<Outcome> {
  const { mode, seed, print } = options
  const beganAt = performance.now()
  const clock = (): number => performance.now() - beganAt
  const history = createHistory(mode)
  const users: SandboxUser[] = [{ username: 'owner', password: PASSWORD, wacs: [] }]
  const wacs: string[] = []
  const sandbox = createSandbox({
    ...{ client: CLIENT, users, wacs, tokenLifeSeconds: TOKEN_LIFE_SECONDS },
    ...{ journalSize: 6_000, control: false, scope: 'http://chaos.example' },
  })
  await sandbox.listen()
  const records = createTokenRecords(sandbox, history.tokenRequests)
  const cookies = new Set<string>()
  const isSecret = (text: string): boolean => records.secrets.has(text) || cookies.has(text)

  // Mostly not: the resource server would refuse what an ended session still gets from a cache, and hide the fault.
  const revokes = createRandom(`${seed} ${mode} revocation`).chance(0.25)
  const redis = await startRedisDeployment({ t, mode, replicas: REPLICAS, history, clock })
  const gateways: Awaited<ReturnType<typeof startTokenGateway>>[] = []
  const resourceLinks: Awaited<ReturnType<typeof startLink>>[] = []
  const sandboxPort = portOfUrl(sandbox.url)
  for (let replica = 0; replica < REPLICAS; replica += 1) {
    gateways.push(await startTokenGateway({ replica, sandbox, records, clock }))
    resourceLinks.push(await startLink({ targetPort: sandboxPort }))
  }
  const fleet = await startFleet({
    count: REPLICAS,
    history,
    clock,
    firstSecret: FIRST_SECRET,
    isSecret,
    plainSecrets: [CLIENT.clientSecret, PASSWORD],
    envOf: (replica) => ({
      HOST: '127.0.0.1',
      PUBLIC_URL,
      AUTH_URL: sandbox.authUrl,
      BASE_URL: `http://127.0.0.1:${resourceLinks[replica]!.port}`,
      OAUTH_TOKEN_URL: `${gateways[replica]!.url}/oauth/token`,
      ...(revokes ? { OAUTH_REVOCATION_URL: `${gateways[replica]!.url}/oauth/revoke` } : {}),
      OAUTH_SCOPE: 'http://chaos.example',
      CLIENT_ID: CLIENT.clientId,
      CLIENT_SECRET: CLIENT.clientSecret,
      REDIS_URL: redis.urlFor(replica),
      TOKEN_TIMEOUT_MS: String(TOKEN_TIMEOUT_MS),
      UPSTREAM_TIMEOUT_MS: String(UPSTREAM_TIMEOUT_MS),
      REFRESH_THRESHOLD_SECONDS: '2',
      SESSION_IDLE_SECONDS: String(SESSION_IDLE_SECONDS),
      SHUTDOWN_SECONDS: String(SHUTDOWN_SECONDS),
      SHUTDOWN_DELAY_SECONDS: '0',
      LOGIN_RATE_PER_MINUTE: '0',
      LOG_LEVEL: 'info',
    }),
  })
  const revocation = revokes ? 'a sign-out revokes tokens' : 'a sign-out revokes no tokens'
  print(
    `${REPLICAS} replicas, ${redis.nodes.length} Redis, ${redis.sentinels.length} Sentinels are up; ${revocation}`,
  )

  const stopWatchingStalls = watchStalls(history, clock)
  let memoryMegabytes = 0
  const measuring = setInterval(() => {
    records.readJournal()
    for (let replica = 0; replica < REPLICAS; replica += 1) {
      const open = redis.linksOf(replica).reduce((sum, link) => sum + link.connections(), 0)
      const detail = `replica ${replica}: ${open}`
      if (open > MAX_REDIS_CONNECTIONS)
        history.findings.push({ at: clock(), what: 'too many connections to Redis', detail })
      const token = gateways[replica]!.connections()
      if (token > MAX_TOKEN_CONNECTIONS) {
        history.findings.push({
          ...{
            at: clock(),
            what: 'too many connections to the token endpoint',
            detail: `replica ${replica}: ${token}`,
          },
        })
      }
    }
    void fleet.measure().then(({ megabytes }) => {
      memoryMegabytes = Math.max(memoryMegabytes, megabytes)
    })
  }, 2_500)
  const probing = setInterval(() => void fleet.probe(), 1_000)

  const browsers = startBrowsers({
    ...{ count: options.browsers, seed: `${seed} ${mode}`, fleet, publicUrl: PUBLIC_URL, history, clock },
    addUser(username) {
      users.push({ username, password: PASSWORD, wacs: [username] })
      wacs.push(username)
    },
    onCode: (code, user) => records.setOwner(code, user),
    onCookie: (value) => cookies.add(value),
  })

  const printed = new Set<string>()
  const printNewViolations = (): void => {
    records.readJournal()
    for (const { id, at: when, what } of check(history).violations) {
      if (printed.has(id)) continue
      printed.add(id)
      print(`${at(when)}  VIOLATION ${what}`)
    }
  }

  const context: FaultContext = { fleet, redis, gateways, resourceLinks, sandbox, history, clock }
  try {
    await elapsed(2_500)
    const goesOn = (): boolean => clock() < options.lengthMs && options.isStopped?.() !== true
    for (let round = 1; round === 1 || goesOn(); round += 1) {
      const plan = planRound({
        ...{ seed, mode, round, lengthMs: options.roundMs },
        ...(options.kinds === undefined ? {} : { kinds: options.kinds }),
      })
      print(`${at(clock())}  round ${round}: ${plan.length} faults`)
      const running = plan.map(async (planned) => {
        await elapsed(planned.atMs)
        // Sign-outs are hardest at that moment.
        if (isOfRedis(planned.kind)) browsers.signOutSome(SIGN_OUTS_AT_FAULT)
        const { kind, replica, lastsMs } = planned
        await applyFault(context, planned, (fault, reason) => {
          if (fault === null) return print(`${at(clock())}  left out: ${kind} (${reason})`)
          const who = fault.replica === null ? '' : `, replica ${replica}`
          const detail = fault.detail === '' ? '' : ` (${fault.detail})`
          print(`${at(fault.from)}  ${kind}${who}${detail}, for ${(lastsMs / 1_000).toFixed(1)} s`)
        })
      })
      await Promise.all(running)
      await fleet.startAll()
      await heal()
      printNewViolations()
    }
  } finally {
    await browsers.stop()
    // The newest results of calls.
    clearInterval(measuring)
    clearInterval(probing)
    stopWatchingStalls()
    await stopFleet()
    records.readJournal()
    redis.close()
    for (const part of [...gateways, ...resourceLinks]) part.close()
    await sandbox.close()
    await fleet.close()
  }
  return { history, verdict: check(history), tookMs: clock(), memoryMegabytes }

  /** Waits until Redis is whole again and every living session has been served by every replica. */
  async function heal(): Promise<void> {
    const from = clock()
    browsers.beginHealing()
    let reason = await redis.unhealthyReason()
    while (reason !== null && clock() - from < STEADY_MS) {
      await elapsed(250)
      reason = await redis.unhealthyReason()
    }
    if (reason !== null) {
      history.findings.push({ at: clock(), what: 'Redis was not whole again in time', detail: reason })
    }
    const wholeAt = clock()
    let missing = notServedSince(from)
    while (missing.length > 0 && clock() - from < HEAL_MS + (wholeAt - from)) {
      await elapsed(250)
      missing = notServedSince(from)
    }
    browsers.endHealing()
    history.healings.push({ from, until: clock(), notServed: missing })
    const words = reason ?? `Redis is whole after ${at(wholeAt - from)}`
    const readable = await redis.findReadable(isSecret)
    if (readable > 0) {
      history.findings.push({
        at: clock(),
        what: 'a readable token or cookie in Redis',
        detail: `${readable} values`,
      })
    }
    print(`${at(clock())}  healed: ${words}, all sessions are served after ${at(clock() - from)}`)
  }

  function notServedSince(from: number): string[] {
    const recent = history.calls.slice(-10_000).filter((call) => call.sentAt >= from && call.status === 200)
    const served = new Map<string, Set<number>>()
    for (const { session, replica } of recent) {
      if (session === null) continue
      const by = served.get(session) ?? new Set()
      served.set(session, by.add(replica))
    }
    const living = browsers.living().filter(({ signedInAt }) => signedInAt < from)
    return living.filter(({ user }) => (served.get(user)?.size ?? 0) < REPLICAS).map(({ user }) => user)
  }

  /** The last check: every process stops in good order. */
  async function stopFleet(): Promise<void> {
    for (const replica of fleet.replicas) replica.resume()
    await Promise.all(fleet.replicas.map((replica) => replica.stop()))
  }
}

function watchStalls(history: History, clock: () => number): () => void {
  const everyMs = 50
  let lastAt = clock()
  const timer = setInterval(() => {
    const now = clock()
    const late = now - lastAt - everyMs
    if (late > 50) history.stalls.push({ at: now, ms: late })
    lastAt = now
  }, everyMs)
  return () => clearInterval(timer)
}
