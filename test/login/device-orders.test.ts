import type { FastifyReply, FastifyRequest } from 'fastify'
import t from 'tap'
import { createSessionCookies, recordKeyOf } from '../../src/http/cookies.ts'
import { createKeyring } from '../../src/keyring.ts'
import { createLog } from '../../src/log.ts'
import { createDevices } from '../../src/login/device.ts'
import { Secret } from '../../src/secret.ts'
import { createMemoryStore } from '../../src/vault/store/memory/store.ts'
import { type RecordKey, recordMembers, stateOf } from '../../src/vault/store/record.ts'
import { createRun } from '../../src/vault/store/run.ts'
import type { SessionStore } from '../../src/vault/store/store.ts'
import { createVault, openTokens, StoreUnavailable, sealTokens } from '../../src/vault/vault.ts'
import { createDevice, type Device, refreshChallenge, registrationChallenge } from '../helpers/device.ts'
import { RedisServer, type WrongType } from '../simulation/simulated-redis.ts'

const ORIGIN = 'https://app.example.com'
const IDLE_MS = 7_200_000
const TRUST_MS = 1_000
const [FIRST, SECOND] = ['first', 'second'].map(
  (name) => new Secret(`the-${name}-secret-of-the-tests-of-32-characters`),
) as [Secret, Secret]
const [BEFORE, AFTER] = [createKeyring([FIRST]), createKeyring([SECOND, FIRST])]
const log = createLog('silent')
/** Keys take long to make. A browser makes one for each sign-in. */
const KEYS = Array.from({ length: 6 }, createDevice)
const THIEFS_KEY = createDevice()
const CONFIG = {
  publicUrl: ORIGIN,
  refresh: { aheadSeconds: 300, thresholdSeconds: 30, concurrency: 8, reuseSeconds: 0 },
  oauth: { clientId: 'client', tokenTimeoutMs: 10_000 },
  shutdownSeconds: 20,
}

/** What may happen to a browser and its server after a first sign-in. */
const USUAL = [
  'sign in',
  'sign out',
  'register',
  'register, answer lost',
  'refresh',
  'refresh, answer lost',
  'device cookie expires',
  'a minute passes',
  'store away',
  'store back',
  'secret changes',
] as const
const RARE = [
  'sign in at a replica of 0.2',
  'ended by an operator',
  'a failover loses what happened last',
  'tokens sealed again',
  'tokens replaced',
] as const
type Event = (typeof USUAL)[number] | (typeof RARE)[number]

interface DeviceCookie {
  value: string
  /** When the browser deletes it. */
  endsAt: number
}

/** A browser, two replicas and one of version 0.2 over one store, and a clock that only the test moves. */
function createWorld() {
  let wall = 1_800_000_000_000
  let away = false
  let keyring = BEFORE
  const clock = { wall: () => wall, monotonic: () => wall - 1_700_000_000_000 }
  const events = { stored() {}, leaseChanged() {}, deleted() {} }
  let server = new RedisServer({ name: 'first', trueTime: clock.wall, events })
  /** When the last event began, and the one before it. */
  let began = [wall, wall]
  const others = createMemoryStore({ now: clock.wall, idleMs: IDLE_MS })
  const operator = storeOf(false)
  let replicas = [startReplica(), startReplica()]
  let old = startReplica(true)
  let turn = 0
  const replica = () => replicas[turn++ % replicas.length]!

  function storeOf(is02: boolean): SessionStore {
    async function ask<T>(work: () => T | WrongType): Promise<T> {
      const reply = away ? new Error('away') : work()
      if (reply instanceof Error) throw new StoreUnavailable(reply)
      return reply
    }
    const read = (key: RecordKey) => ask(() => server.read(key, is02))
    const run = createRun(
      {
        read,
        write: (key, _member, change) => ask(() => server.write(key, change, is02)),
        historyOf: () => server.name,
      },
      { idleMs: IDLE_MS, withinMs: 1_000, monotonic: clock.monotonic },
    )
    return {
      ...others,
      ...recordMembers(run, clock.wall),
      async readState(key) {
        const { record } = await read(key)
        return record === null ? null : stateOf(record, IDLE_MS)
      },
      readEnd: (key) => ask(() => server.readEnd(key)),
    }
  }

  function startReplica(is02 = false) {
    const cookies = createSessionCookies({ keyring, publicUrl: ORIGIN, secure: true })
    const session = { idleSeconds: IDLE_MS / 1_000, maxSeconds: 43_200, cacheMs: TRUST_MS, isBound: !is02 }
    const vault = createVault({
      config: { ...CONFIG, session },
      store: storeOf(is02),
      authorizationClient: {
        refresh: () => Promise.reject(new Error('no token is due')),
        revoke: async () => null,
      },
      keyring,
      cookies,
      clock,
      random: () => 0.5,
      log,
      observe: {
        events: { refreshed() {}, lagged() {}, ended() {}, cache() {}, retried() {}, restored() {} },
      },
    })
    const { devices } = vault
    const observe = { bound() {}, deviceRefreshed() {} }
    return {
      cookies,
      vault,
      devices: devices && createDevices({ devices, look: vault.look, cookies, log, observe }),
    }
  }

  /** The browser: its cookies, the key that it uses for the host, and the registration that it was offered last. */
  const browser = {
    session: '',
    device: null as DeviceCookie | null,
    key: null as Device | null,
    offered: null as { token: string; key: Device } | null,
    signIns: 0,
    /** By an operator. */
    isEnded: false,
  }
  const sessionCookie = () => `__Host-Http-session=${browser.session}`
  /** Null where it is not there, or has expired. */
  const deviceCookie = () =>
    browser.device === null || wall >= browser.device.endsAt ? null : withDevice(browser.device)
  const withDevice = ({ value }: DeviceCookie) => `${sessionCookie()}; __Host-device=${value}`

  /** Sends to one of the two routes. The device cookie of the answer is null where it sets none. */
  async function send(route: 'register' | 'refresh', cookie: string, token: string | undefined) {
    const answer = { status: 0, device: null as DeviceCookie | null, headers: {} as Record<string, string> }
    const reply = {
      code(status: number) {
        answer.status = status
        return reply
      },
      header(name: string, value: string) {
        answer.headers[name] = value
        return reply
      },
      send: () => reply,
      setCookie(_name: string, value: string, { maxAge }: { maxAge: number }) {
        answer.device = { value, endsAt: wall + maxAge * 1_000 }
        return reply
      },
    }
    const request = { id: 'a', ip: '127.0.0.1', headers: { cookie, 'secure-session-response': token } }
    try {
      await replica().devices![route](request as unknown as FastifyRequest, reply as unknown as FastifyReply)
    } catch (error) {
      answer.status = (error as { status: number }).status
    }
    return answer
  }

  /** As a browser does it: the challenge, then the proof. */
  async function refresh(cookie: string, key: Device) {
    const challenged = await send('refresh', cookie, undefined)
    if (challenged.status !== 403) return challenged
    const challenge = refreshChallenge({ headers: challenged.headers })
    return await send('refresh', cookie, key.proof(challenge))
  }

  /** The browser's refresh. It forgets its key where the server refuses it, and keeps it over an outage. */
  async function refreshOwn({ isLost = false } = {}): Promise<boolean> {
    if (browser.key === null || browser.session === '') return false
    const answer = await refresh(sessionCookie(), browser.key)
    if (isLost) return false
    if (answer.status === 200) browser.device = answer.device
    else if (answer.status !== 503) browser.key = null
    return answer.status === 503
  }

  async function register({ isLost = false } = {}): Promise<void> {
    if (browser.offered === null) return
    const { token, key } = browser.offered
    // Without a cookie, as after a page of the authorization server.
    const answer = await send('register', '', token)
    if (isLost || answer.status !== 200) return
    browser.key = key
    browser.device = answer.device ?? browser.device
  }

  async function signIn({ cookies, vault }: ReturnType<typeof startReplica>): Promise<RecordKey | null> {
    if (away) return null
    const id = cookies.newSessionId()
    const replaced = keyOfSession()
    const key = recordKeyOf(id)
    await vault.begin(key, newTokens(wall), 'code')
    await vault.confirm(key)
    // Another replica may have its record in a form that this one cannot read.
    if (replaced !== null) await vault.end(replaced, 'replaced').catch(() => {})
    browser.session = cookies.sign(id)
    browser.offered = null
    browser.isEnded = false
    return key
  }

  function keyOfSession(): RecordKey | null {
    return browser.session === '' ? null : (replicas[0]!.cookies.verify(browser.session)?.recordKey ?? null)
  }

  const recordOf = (key: RecordKey | null) => (key === null ? null : server.live(key))

  const steps: Record<Event, () => Promise<void>> = {
    async 'sign in'() {
      const at = replica()
      const key = await signIn(at)
      if (key === null) return
      const headers = { 'secure-session-registration': at.vault.devices!.registration(key) }
      const own = KEYS[browser.signIns++ % KEYS.length]!
      browser.offered = { token: own.registration(registrationChallenge({ headers })), key: own }
    },
    async 'sign in at a replica of 0.2'() {
      await signIn(old)
    },
    async 'sign out'() {
      const key = keyOfSession()
      if (away || key === null) return
      await replica().vault.end(key, 'logout')
      Object.assign(browser, { session: '', device: null })
    },
    async 'ended by an operator'() {
      const key = keyOfSession()
      if (away || key === null) return
      await operator.end(key, { reason: 'operator' })
      browser.isEnded = true
    },
    register,
    'register, answer lost': () => register({ isLost: true }),
    refresh: async () => void (await refreshOwn()),
    'refresh, answer lost': async () => void (await refreshOwn({ isLost: true })),
    async 'device cookie expires'() {
      browser.device = null
    },
    async 'a minute passes'() {
      wall += 61_000
    },
    async 'store away'() {
      away = true
    },
    async 'store back'() {
      away = false
    },
    async 'a failover loses what happened last'() {
      server = server.fork('second', began[0]! - 1)
    },
    async 'secret changes'() {
      keyring = AFTER
      replicas = [startReplica(), startReplica()]
      old = startReplica(true)
    },
    async 'tokens sealed again'() {
      const key = keyOfSession()
      const record = recordOf(key)
      if (away || key === null || record === null) return
      const sealed = sealTokens(keyring, key, openTokens(keyring, key, record.tokens)!.tokens)
      await operator.reseal(key, record.tokens, sealed)
    },
    async 'tokens replaced'() {
      const key = keyOfSession()
      const record = recordOf(key)
      if (away || key === null || record === null) return
      const tokens = sealTokens(keyring, key, newTokens(wall))
      await operator.replaceTokens(key, { gen: record.gen, tokens })
    },
  }

  /** 200, or the status of the problem. */
  async function call(cookie: string, { at = replica(), skipped = false } = {}): Promise<number> {
    const { vault } = at
    if (vault.cached(cookie) !== null) return 200
    try {
      await vault.find(cookie, { request: { reqId: 'a', address: '127.0.0.1' }, skipped })
      return 200
    } catch (error) {
      if (error instanceof StoreUnavailable) return 503
      return (error as { status: number }).status
    }
  }

  /** The browser's next call: it refreshes before, once, if its device cookie has gone. */
  async function callOfBrowser(): Promise<number> {
    const isHeld = browser.key !== null && deviceCookie() === null
    const skipped = isHeld && (await refreshOwn())
    return await call(deviceCookie() ?? sessionCookie(), { skipped })
  }

  /** Statuses that a client with a copy of the session cookie alone gets, whatever it tries. */
  async function callOfThief(): Promise<number> {
    const cookie = sessionCookie()
    const forged = THIEFS_KEY.registration('a challenge of its own')
    const attempts = [
      await send('register', cookie, forged),
      ...(browser.offered === null ? [] : [await send('register', cookie, browser.offered.token)]),
      await refresh(cookie, THIEFS_KEY),
    ]
    const device = attempts.find((one) => one.device !== null)?.device
    return await call(device ? withDevice(device) : cookie)
  }

  return {
    browser,
    callOfBrowser,
    callOfThief,
    /** A call by the session cookie alone at the replica of 0.2. */
    callAt02: () => call(sessionCookie(), { at: old }),
    async happens(event: Event): Promise<void> {
      wall += 1
      began = [began[1]!, wall]
      await steps[event]()
    },
    isAway: () => away,
    record: () => recordOf(keyOfSession()),
    /** What replicas knew of a session from memory is known no longer. */
    distrust() {
      wall += TRUST_MS
    },
    close: () => others.close(),
  }
}

/** What is wrong after these events; null if nothing is. */
async function findFault(events: readonly Event[]): Promise<string | null> {
  const world = createWorld()
  const { browser } = world
  try {
    await world.happens('sign in')
    for (const event of events) await world.happens(event)
    world.distrust()
    if (browser.session === '') return null
    const wasAway = world.isAway()
    const during = await world.callOfBrowser()
    if (wasAway && during !== 503) return `during the outage the browser got ${during}`
    await world.happens('store back')
    const status = await world.callOfBrowser()
    const record = world.record()
    // An end that a failover has lost may still be known to a replica.
    const isOver = record === null || browser.isEnded
    if (status !== (record === null ? 401 : 200) && !browser.isEnded) return `the browser got ${status}`
    const isBound = record?.bound === true
    const stolen = await world.callOfThief()
    // Not bound, the cookie alone reads: so it is everywhere without the feature.
    if (stolen !== (isBound || record === null ? 401 : 200) && !(isOver && stolen === 401))
      return `${isBound ? 'bound' : 'unbound'}, and the thief got ${stolen}`
    const atOld = await world.callAt02()
    if (isBound ? atOld !== 503 : atOld === 401 && !isOver) return `a replica of 0.2 answered ${atOld}`
    seen[isBound ? 'bound' : isOver ? 'over' : 'unbound'] += 1
    return null
  } finally {
    await world.close()
  }
}

function newTokens(now: number) {
  const tokens = { accessToken: new Secret('access'), refreshToken: new Secret('refresh') }
  return { ...tokens, lifeSeconds: 86_400, expiresAt: now + 86_400_000, scope: null }
}

/** Every order of three usual events, and of two events of all. */
function* orders(): Generator<Event[]> {
  const bound: Event[] = ['register', 'refresh']
  for (const first of USUAL)
    for (const second of USUAL)
      for (const third of USUAL) for (const before of [[], bound]) yield [...before, first, second, third]
  const all = [...USUAL, ...RARE]
  for (const first of all)
    for (const second of all)
      for (const before of [['register'] as Event[], bound, [...bound, ...bound]])
        yield [...before, first, second]
}

const seen = { bound: 0, unbound: 0, over: 0 }

t.test(
  'in every order of events the browser gets in within one refresh, and a copied cookie never does once bound',
  async (t) => {
    let faults = 0
    for (const events of orders()) {
      const fault = await findFault(events)
      if (fault !== null && ++faults <= 5) t.fail(`${events.join(', ')}: ${fault}`)
    }
    t.equal(faults, 0)
    t.ok(seen.bound > 500 && seen.unbound > 500 && seen.over > 50, JSON.stringify(seen))
  },
)
