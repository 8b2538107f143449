// The life of sessions at a real authorization server, held against what docs/servers.md says of it.

import { PassThrough } from 'node:stream'
import type { Test } from 'tap'
import { runLive } from '../../../operator/measure/live.ts'
import type { Finding } from '../../../operator/report.ts'
import { environmentFor } from '../../../sandbox/profile.ts'
import { PROFILES } from '../../../sandbox/profiles.ts'
import { type Answer, type Browser, createBrowser } from '../browser.ts'
import { freePort } from '../ports.ts'
import { startRedis } from '../redis.ts'
import { startServer } from '../server-process.ts'
import { type Bff, startBff, untilReady } from '../system.ts'
import { elapsed, until } from '../wait.ts'
import { examine, holdMatrix, MATRIX } from './doctor.ts'
import { documented } from './documented.ts'
import { type Gateway, startGateway } from './gateway.ts'
import { MEASURED, TO_FIND } from './measured.ts'
import type { RealServer } from './real-server.ts'
import { startResource } from './resource.ts'
import { createVisitor, type Visitor } from './visitor.ts'

interface Options {
  /** The profile whose environment and documentation belong to the server. */
  readonly profile: string
  /** Starts the server with a client for this callback. */
  start(t: Test, callback: string): Promise<RealServer>
  /** What differs from the environment and from the documentation of the profile. */
  readonly env?: Readonly<Record<string, string>>
  readonly differs?: Partial<ReturnType<typeof documented>>
}

/** Long enough for everything that is not about expiry. */
const LONG_SECONDS = 600
const SHORT_SECONDS = 4
const SECRET = 'a-secret-of-the-tests-longer-than-32-characters'

/** Runs all flows at one server. */
export async function runFlows(t: Test, { profile, start, env: own = {}, differs }: Options) {
  const port = await freePort()
  const publicUrl = `http://localhost:${port}`
  const server = await start(t, `${publicUrl}/auth/callback`)
  const says = { ...documented(profile), ...differs }
  const asDocumented = differs === undefined
  const gateway = await startGateway(t, server.origin)
  const resource = await startResource(t, server.guard)
  const advised = environmentFor(PROFILES[profile]!, server.origin)
  const direct = {
    PUBLIC_URL: publicUrl,
    ...advised,
    ...own,
    ...server.env,
    BASE_URL: resource.baseUrl,
    PORT: String(port),
    WAC: 'DEMO',
  }
  const byGateway = Object.entries(direct)
    .filter(([name]) => name === 'OAUTH_TOKEN_URL' || name === 'OAUTH_REVOCATION_URL')
    .map(([name, value]) => [name, gateway.at(value)])
  const env: Record<string, string> = {
    ...direct,
    // The default where the profile names none.
    OAUTH_TOKEN_URL: gateway.at(`${advised.AUTH_URL}/oauth/token`),
    ...Object.fromEntries(byGateway),
    LOGIN_RATE_PER_MINUTE: '0',
  }
  const system = { profile, server, says, gateway, resource, env, direct }

  await server.setLife(LONG_SECONDS)
  if (asDocumented) {
    await t.test('the doctor is right about each mistake', (t) => askDoctor(t, system))
    await t.test('the measurement finds what the profile was made of', (t) => measure(t, system))
  }
  await t.test('sign-in, refresh, refusal, second browser and sign-out go as documented', (t) =>
    useIt(t, system),
  )
  await server.setLife(SHORT_SECONDS)
  await t.test(
    'background refreshes over four lives; a withdrawal ends the session, and nobody else notices',
    (t) => withdraw(t, system),
  )
  await t.test(`a session whose replica is killed during its refresh is ${says.lostAnswer}`, (t) =>
    killReplica(t, system),
  )
}

interface System {
  readonly profile: string
  readonly server: RealServer
  readonly says: ReturnType<typeof documented>
  readonly gateway: Gateway
  readonly resource: Awaited<ReturnType<typeof startResource>>
  readonly env: Record<string, string>
  /** Without the gateway. */
  readonly direct: Record<string, string>
}

async function askDoctor(t: Test, { profile, direct }: System): Promise<void> {
  const right = { SESSION_STORE: 'memory', SESSION_SECRET: SECRET, ...direct }
  await holdMatrix(t, MATRIX[profile]!, { right, examine: (change = {}) => examine({ ...right, ...change }) })
}

async function measure(t: Test, { profile, server, direct }: System): Promise<void> {
  const advised = Object.entries(direct).filter(([variable]) => !TO_FIND.includes(variable))
  const env = {
    HOST: '127.0.0.1',
    SESSION_SECRET: SECRET,
    REDIS_URL: 'redis://127.0.0.1:9',
    ...Object.fromEntries(advised),
  }
  const lines: Finding[] = []
  const input = new PassThrough()
  // No to each question.
  input.end()
  const stop = new AbortController()
  const ended = runLive(
    env,
    { json: true, flux: 'DEMO/x', site: null, restore: null, draft: [], out: null },
    {
      input,
      out: (line) => lines.push(JSON.parse(line) as Finding),
      error: (line) => t.comment(line),
      stop: stop.signal,
    },
  )
  t.teardown(async () => {
    stop.abort()
    await ended
  })
  const { PUBLIC_URL: publicUrl = '' } = direct
  const browser = createBrowser(publicUrl)
  const visitor = createVisitor(publicUrl)
  for (const number of [1, 2]) {
    const addresses = () => lines.filter(({ check }) => check === 'sign-in').map(({ value }) => String(value))
    await until(`address ${number}`, () => addresses().length >= number)
    const start = await browser.navigate(addresses()[number - 1]!.slice(publicUrl.length))
    const decision = { account: server.accounts[0], accepts: true }
    const back = await server.decide(visitor, String(start.headers.location), decision)
    await browser.navigate(back ?? '', { from: 'cross-site' })
  }
  await ended
  const { settings, ...expected } = MEASURED[profile]!
  for (const [check, found] of Object.entries(expected))
    t.match(
      lines.find((line) => line.check === check),
      typeof found === 'object' ? found : { value: found },
      check,
    )
  const found = lines.flatMap(({ setting }) => setting ?? [])
  t.strictSame(found.sort(), [...settings].sort(), JSON.stringify(lines))
}

async function useIt(t: Test, { server, says, gateway, resource, env }: System): Promise<void> {
  const bff = await startBff(t, { authUrl: server.origin, baseUrl: resource.baseUrl }, env)
  const person = createVisitor(bff.publicUrl)
  const browser = await signIn(bff, server, person)
  t.match((await browser.fetch('/auth/session')).json(), { authenticated: true, refreshable: true })
  t.equal((await browser.fetch('/flux/x')).status, 200)

  const old = resource.bearer()
  resource.expire()
  t.equal((await browser.fetch('/flux/x')).status, 200, 'with a new token')
  t.not(resource.bearer(), old)
  const [refresh] = gateway.refreshes()
  const brought = refresh!.answer.refresh_token
  const kind = brought === undefined ? 'no new' : brought === refresh!.form.refresh_token ? 'same' : 'new'
  t.equal(`${kind} refresh token`, says.refresh)
  t.equal((await server.guard(old)).ok, says.oldAccess === 'lives', `the old access token ${says.oldAccess}`)

  const other = createVisitor(bff.publicUrl)
  t.equal(await refusalOf(bff, server, other), says.refusal)

  const older = await signIn(bff, server, person)
  const newer = await signIn(bff, server, person)
  for (const one of [older, newer]) t.equal((await one.fetch('/flux/x')).status, 200)
  resource.expire()
  t.equal((await newer.fetch('/flux/x')).status, 200)
  const { status } = await older.fetch('/flux/x')
  const ends = 'the older one is signed out at its next refresh'
  t.equal(status === 200 ? 'both stay' : status === 401 ? ends : String(status), says.secondBrowser)

  const leaving = await signIn(bff, server, person)
  t.equal((await leaving.fetch('/flux/x')).status, 200)
  const bearer = resource.bearer()
  const answer = await leaving.fetch('/auth/logout', { method: 'POST' })
  t.equal(answer.status, env.OAUTH_END_SESSION_URL === undefined ? 204 : 200)
  t.equal((await leaving.fetch('/flux/x')).status, 401)
  if (env.OAUTH_REVOCATION_URL !== undefined) {
    const { pathname } = new URL(env.OAUTH_REVOCATION_URL)
    await until('both tokens are revoked', () => {
      const sent = gateway.exchanges.filter(({ path }) => path === pathname)
      return sent.length >= 2 && sent.every(({ status }) => status === 200)
    })
  }
  t.equal((await server.guard(bearer)).ok ? 'nothing ends there' : 'both tokens end', says.signOut)
  t.notMatch(bff.log(), /"event":"(?:revocation\.failed|platform\.scope_differs|login\.no_refresh_token)"/)
}

async function withdraw(t: Test, { server, says, gateway, resource, env }: System): Promise<void> {
  const bff = await startBff(t, { authUrl: server.origin, baseUrl: resource.baseUrl }, env)
  const from = gateway.exchanges.length
  const [, unconcerned] = server.accounts
  const healthy = await signIn(bff, server, createVisitor(bff.publicUrl), unconcerned)
  const stop = new AbortController()
  const statuses = new Set<number>()
  const calls = (async () => {
    while (!stop.signal.aborted) {
      statuses.add((await healthy.fetch('/flux/x')).status)
      await elapsed(100)
    }
  })()

  const person = createVisitor(bff.publicUrl)
  const quiet = await signIn(bff, server, person)
  // The healthy user may have been refreshed since.
  const redeemed = gateway.exchanges.findLast(({ form }) => form.grant_type === 'authorization_code')
  const first = redeemed?.answer.refresh_token
  const since = () => gateway.exchanges.slice(from)
  await until('four refreshes without a call', () => chainOf(since(), String(first)).length >= 4)
  t.equal((await quiet.fetch('/flux/x')).status, 200)

  await server.withdraw(person)
  const isRefused = ({ status }: { status: number }) => status >= 400
  const answers: number[] = []
  await until('the session has ended', async () => {
    answers.push((await quiet.fetch('/flux/x')).status)
    return answers.at(-1) === 401
  })
  if (says.withdrawn === 'signed out at the next call') t.strictSame(answers, [401])
  t.match((await quiet.fetch('/auth/session')).json(), { authenticated: false, ended: { reason: 'refused' } })
  const refused = chainOf(since(), String(first)).filter(isRefused)
  const answered = JSON.stringify(refused.map(({ status, answer }) => [status, answer]))
  t.equal(refused.length, 1, `its token was presented once more: ${answered}`)
  stop.abort()
  await calls
  t.strictSame([...statuses], [200], 'a healthy user beside it')

  const tokens = since().flatMap(({ form }) => form.refresh_token ?? [])
  if (says.refresh === 'new refresh token')
    t.equal(new Set(tokens).size, tokens.length, 'none was presented twice')
}

/** The refreshes of the session that began with this refresh token. */
function chainOf(exchanges: Gateway['exchanges'], first: string) {
  const tokens = new Set([first])
  return exchanges.filter(({ form, answer }) => {
    if (!tokens.has(form.refresh_token ?? '')) return false
    if (typeof answer.refresh_token === 'string') tokens.add(answer.refresh_token)
    return true
  })
}

async function killReplica(t: Test, { server, says, gateway, resource, env }: System): Promise<void> {
  const redis = await startRedis(t)
  const replica = {
    ...env,
    SESSION_STORE: 'redis',
    REDIS_URL: redis.url,
    SESSION_SECRET: SECRET,
  }
  const killed = await startServer(t, replica)
  const browser = createBrowser(killed.publicUrl)
  const gate = gateway.hold()
  await signInWith(browser, server, createVisitor(killed.publicUrl))
  // A call would wait for the refresh where the machine was held up for a life of its token.
  t.match((await browser.fetch('/auth/session')).json(), { authenticated: true })
  await gate.arrived
  await killed.stop('SIGKILL')
  gate.release()
  const survivor = await startBff(t, { authUrl: server.origin, baseUrl: resource.baseUrl }, replica)
  await untilReady(survivor)
  // Its token may still live: the resource server learns it, and refuses it from then on.
  await browser.fetch('/flux/x')
  resource.expire()
  let answer: Answer | null = null
  await until('an answer that is not 503', async () => {
    answer = await browser.fetch('/flux/x')
    return answer.status !== 503
  })
  t.equal(answer!.status === 200 ? 'kept' : 'lost', says.lostAnswer, answer!.text)
}

async function signIn(bff: Bff, server: RealServer, visitor: Visitor, account = server.accounts[0]) {
  const browser = bff.browser()
  await signInWith(browser, server, visitor, account)
  return browser
}

async function signInWith(
  browser: Browser,
  server: RealServer,
  visitor: Visitor,
  account = server.accounts[0],
): Promise<void> {
  const start = await browser.navigate('/auth/login')
  const back = await server.decide(visitor, String(start.headers.location), { account, accepts: true })
  if (back === null) throw new Error('the server keeps the user')
  const answer = await browser.navigate(back, { from: 'cross-site' })
  if (answer.status !== 303) throw new Error(`the callback answered ${answer.status}: ${answer.text}`)
}

/** What the page learns of a refusal by the user. */
async function refusalOf(bff: Bff, server: RealServer, visitor: Visitor): Promise<string> {
  const browser = bff.browser()
  const start = await browser.navigate('/auth/login')
  const account = server.accounts[1]
  const back = await server.decide(visitor, String(start.headers.location), { account, accepts: false })
  if (back === null) return 'stays at the server'
  const { headers } = await browser.navigate(back, { from: 'cross-site' })
  return `\`${new URL(String(headers.location), bff.publicUrl).searchParams.get('login_error')}\``
}
