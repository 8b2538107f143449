import type { FastifyReply, FastifyRequest } from 'fastify'
import t from 'tap'
import { createSessionCookies, recordKeyOf } from '../../src/http/cookies.ts'
import { createKeyring } from '../../src/keyring.ts'
import { createLog } from '../../src/log.ts'
import { createDevices } from '../../src/login/device.ts'
import { Secret } from '../../src/secret.ts'
import { createBinding } from '../../src/vault/binding.ts'
import { createSessionCache } from '../../src/vault/cache.ts'
import { type Caller, createCallers } from '../../src/vault/caller.ts'
import { createMemoryStore } from '../../src/vault/store/memory/store.ts'
import { StoreUnavailable } from '../../src/vault/store/store.ts'
import { createDevice, type Device, refreshChallenge, registrationChallenge } from '../helpers/device.ts'
import { newRecord } from '../vault/store/stores.ts'

const ORIGIN = 'https://app.example.com'
const PATHS = { register: '/auth/device', refresh: '/auth/device/refresh' }
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

/** What may happen to a browser and its server after a first sign-in. */
const EVENTS = [
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
type Event = (typeof EVENTS)[number]

interface DeviceCookie {
  value: string
  /** When the browser deletes it. */
  endsAt: number
}

/** A browser, two replicas over one store, and a clock that only the test moves. */
function createWorld() {
  let wall = 1_800_000_000_000
  let away = false
  let keyring = BEFORE
  const memory = createMemoryStore({ now: () => wall, idleMs: IDLE_MS })
  const store = new Proxy(memory, {
    get: (target, name) => {
      const member: unknown = Reflect.get(target, name)
      if (typeof member !== 'function') return member
      return (...args: unknown[]) => {
        if (away) return Promise.reject(new StoreUnavailable(new Error('away')))
        return member.apply(target, args)
      }
    },
  })
  const clock = { wall: () => wall, monotonic: () => wall - 1_700_000_000_000 }
  let replicas = [startReplica(), startReplica()]
  let turn = 0
  const replica = () => replicas[turn++ % replicas.length]!

  function startReplica() {
    const cookies = createSessionCookies({ keyring, publicUrl: ORIGIN, secure: true })
    const binding = createBinding({ keyring, publicUrl: ORIGIN, paths: PATHS, now: () => wall })
    const devices = createDevices({
      ...{ cookies, log },
      devices: {
        ...binding,
        registerDevice: (key, device) => store.registerDevice(key, device),
        bindDevice: (key, device) => store.bindDevice(key, device),
        registered: async (key) => (await store.read(key))?.device || null,
      },
      observe: { bound() {}, deviceRefreshed() {} },
    })
    const callers = createCallers({
      ...{ cookies, binding, clock },
      cache: createSessionCache<Caller>({ max: 10, trustMs: TRUST_MS, monotonic: clock.monotonic }),
      trustMs: TRUST_MS,
      sessions: {
        async find(key) {
          const record = await store.read(key)
          if (record === null) return { kind: 'ended', reason: 'logout', at: wall }
          const tokens = {
            ...{ accessToken: new Secret('at'), refreshToken: new Secret('rt'), lifeSeconds: 86_400 },
            ...{ expiresAt: wall + 86_400_000, scope: null },
          }
          return { kind: 'live', session: { key, record, tokens } }
        },
        readState: (key) => store.readState(key),
        touch: async () => true,
        end: async () => true,
      },
      tokens: { obtainAccessToken: async (session) => ({ kind: 'token', session }) },
      timing: { aheadSeconds: 300, thresholdSeconds: 30 },
      idleMs: IDLE_MS,
      observe: () => {},
    })
    return { cookies, binding, devices, callers }
  }

  /** The browser: its cookies, the key that it uses for the host, and the registration that it was offered last. */
  const browser = {
    session: '',
    device: null as DeviceCookie | null,
    key: null as Device | null,
    offered: null as { token: string; key: Device } | null,
    signIns: 0,
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
      await replica().devices[route](request as unknown as FastifyRequest, reply as unknown as FastifyReply)
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

  const steps: Record<Event, () => Promise<void>> = {
    async 'sign in'() {
      if (away) return
      const { cookies, binding } = replica()
      const id = cookies.newSessionId()
      const old = browser.session === '' ? undefined : cookies.verify(browser.session)?.recordKey
      await store.create(recordKeyOf(id), newRecord(wall), 15_000)
      await store.confirm(recordKeyOf(id))
      if (old !== undefined) await store.end(old, { reason: 'replaced' })
      const headers = { 'secure-session-registration': binding.registration(recordKeyOf(id)) }
      const key = KEYS[browser.signIns++ % KEYS.length]!
      browser.session = cookies.sign(id)
      browser.offered = { token: key.registration(registrationChallenge({ headers })), key }
    },
    async 'sign out'() {
      const key = browser.session === '' ? undefined : replica().cookies.verify(browser.session)?.recordKey
      if (away || key === undefined) return
      await store.end(key, { reason: 'logout' })
      Object.assign(browser, { session: '', device: null })
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
    async 'secret changes'() {
      keyring = AFTER
      replicas = [startReplica(), startReplica()]
    },
  }

  /** 200, or the status of the problem. */
  async function call(cookie: string, skipped = false): Promise<number> {
    const { callers } = replica()
    if (callers.cached(cookie) !== null) return 200
    try {
      await callers.find(cookie, () => {}, { inLog: { reqId: 'a', address: '127.0.0.1' }, skipped })
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
    return await call(deviceCookie() ?? sessionCookie(), skipped)
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
    steps,
    callOfBrowser,
    callOfThief,
    isAway: () => away,
    async isBound() {
      const key = replicas[0]!.cookies.verify(browser.session)?.recordKey
      return key !== undefined && (await memory.read(key))?.bound === true
    },
    /** What replicas knew of a session from memory is known no longer. */
    distrust() {
      wall += TRUST_MS
    },
    close: () => memory.close(),
  }
}

/** What is wrong after these events; null if nothing is. */
async function findFault(events: readonly Event[]): Promise<string | null> {
  const world = createWorld()
  try {
    await world.steps['sign in']()
    for (const event of events) await world.steps[event]()
    world.distrust()
    if (world.browser.session === '') return null
    const wasAway = world.isAway()
    const during = await world.callOfBrowser()
    if (wasAway && during !== 503) return `during the outage the browser got ${during}`
    await world.steps['store back']()
    const status = await world.callOfBrowser()
    if (status !== 200) return `the browser got ${status}`
    const isBound = await world.isBound()
    // Not bound, the cookie alone reads: so it is everywhere without the feature.
    const stolen = await world.callOfThief()
    if (stolen !== (isBound ? 401 : 200))
      return `${isBound ? 'bound' : 'unbound'}, and the thief got ${stolen}`
    seen[isBound ? 'bound' : 'unbound'] += 1
    return null
  } finally {
    await world.close()
  }
}

const seen = { bound: 0, unbound: 0 }

t.test(
  'in every order of events the browser gets in within one refresh, and a copied cookie never does once bound',
  async (t) => {
    let faults = 0
    for (const first of EVENTS)
      for (const second of EVENTS)
        for (const third of EVENTS) {
          // Each with a key that is proven already, and without one.
          for (const before of [[], ['register', 'refresh']] as Event[][]) {
            const events = [...before, first, second, third]
            const fault = await findFault(events)
            if (fault !== null && ++faults <= 5) t.fail(`${events.join(', ')}: ${fault}`)
          }
        }
    t.equal(faults, 0)
    t.ok(seen.bound > 500 && seen.unbound > 500, `${seen.bound} bound, ${seen.unbound} unbound`)
  },
)
