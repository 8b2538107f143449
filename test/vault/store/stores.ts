import { createHash, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { Test } from 'tap'
import type { RedisTarget } from '../../../src/config/redis-url.ts'
import { Secret } from '../../../src/secret.ts'
import { createMemoryStore } from '../../../src/vault/store/memory/store.ts'
import type { BeginRefreshRequest, NewRecord, RecordKey } from '../../../src/vault/store/record.ts'
import { openRedis, type RedisClient } from '../../../src/vault/store/redis/connection.ts'
import { createRedisStore, type RedisStoreOptions } from '../../../src/vault/store/redis/store.ts'
import type { SessionStore } from '../../../src/vault/store/store.ts'
import type { Teardown } from '../../helpers/child.ts'
import { startRedis } from '../../helpers/redis.ts'
import { startClusterOfOne } from '../../helpers/redis-groups.ts'
import { elapsed } from '../../helpers/wait.ts'

/** A store under test, with its clock. */
export interface TestStore {
  readonly store: SessionStore
  now(): number
  /** Resolves when at least this many milliseconds have passed on that clock. */
  pass(ms: number): Promise<void>
}

export const PREFIX = 'bff:'
export const IDLE_MS = 7_200_000

/** A memory store whose clock moves only through `pass`. */
export function memoryStore(t: Teardown): TestStore {
  let clock = Date.now()
  const store = createMemoryStore({ now: () => clock, idleMs: IDLE_MS })
  t.teardown(() => store.close())
  return {
    store,
    now: () => clock,
    async pass(ms) {
      clock += ms
    },
  }
}

/** A Redis store that takes writes. */
export async function redisStore(
  t: Teardown,
  target: RedisTarget,
  options: Partial<RedisStoreOptions> = {},
): Promise<TestStore> {
  const store = openRedisStore(t, target, options)
  await untilItWorks(store)
  return { store, now: Date.now, pass: elapsed }
}

/** A Redis store that may not be connected yet. */
export function openRedisStore(
  t: Teardown,
  target: RedisTarget,
  options: Partial<RedisStoreOptions> = {},
): SessionStore {
  const store = createRedisStore({
    target,
    ca: null,
    prefix: PREFIX,
    idleMs: IDLE_MS,
    onRefused: (message) => {
      throw new Error(`refused: ${message}`)
    },
    onUnreachable: () => {},
    onReachable: () => {},
    observe: () => {},
    ...options,
  })
  t.teardown(() => store.close())
  return store
}

/** A client for commands alone. */
export function openCommands(t: Teardown, target: RedisTarget): RedisClient {
  const connections = openRedis({ target, ca: null })
  t.teardown(() => connections.close())
  return connections.commands
}

/** Polls until the store takes writes. */
export async function untilItWorks(store: SessionStore): Promise<void> {
  for (;;) {
    const works = await store.ping().then(
      () => true,
      () => false,
    )
    if (works) return
    await elapsed(20)
  }
}

/** Waits until a client for commands alone has its connection. */
export async function untilConnected(client: RedisClient): Promise<void> {
  if (client.status !== 'ready') await once(client, 'ready')
}

function loginWith(password?: string) {
  return { username: null, password: password === undefined ? null : new Secret(password) }
}

const addressOf = (port: number) => ({ host: '127.0.0.1', port })

export function singleTarget(port: number, db = 0): RedisTarget {
  return { kind: 'single', address: addressOf(port), db, login: loginWith(), tls: false }
}

export function clusterTarget(port: number, password?: string): RedisTarget {
  return { kind: 'cluster', nodes: [addressOf(port)], login: loginWith(password), tls: false }
}

export function sentinelTarget(ports: readonly number[]): RedisTarget {
  const sentinels = ports.map(addressOf)
  const common = { db: 0, login: loginWith(), sentinelPassword: null, tls: false }
  return { kind: 'sentinel', sentinels, master: 'mymaster', ...common }
}

/** An unused record key. */
export function newKey(): RecordKey {
  return createHash('sha256').update(randomUUID()).digest('hex')
}

export function newRecord(createdAt: number, changes: Partial<NewRecord> = {}): NewRecord {
  const whole = { tokens: 'sealed-1', createdAt, endsAt: createdAt + 43_200_000, flow: 'code', client: 'app' }
  return { ...whole, flow: 'code', ...changes }
}

/** Creates and confirms a session. Returns its key. */
export async function startSession(
  { store, now }: TestStore,
  changes: Partial<NewRecord> = {},
): Promise<RecordKey> {
  const key = newKey()
  await store.create(key, newRecord(now(), changes), 15_000)
  await store.confirm(key)
  return key
}

/** Checks that the end of a session by one store shows to the other. */
export async function sees(t: Test, other: TestStore, one: TestStore): Promise<void> {
  const key = await startSession(one)
  t.not(await other.store.readState(key), null)
  await one.store.end(key)
  t.equal(await other.store.readState(key), null)
}

/** Every distinct key of a scan, sorted. */
export async function scan(store: Pick<SessionStore, 'keys'>): Promise<RecordKey[]> {
  const found = new Set<RecordKey>()
  for await (const batch of store.keys()) for (const key of batch) found.add(key)
  return [...found].sort()
}

/** Both topologies with one server, for tests that apply to each. */
export const ONE_SERVER: Record<string, (t: Teardown) => Promise<RedisTarget>> = {
  'a single Redis': async (t) => singleTarget((await startRedis(t)).port),
  'a Cluster': async (t) => clusterTarget((await startClusterOfOne(t)).port),
}

/** The request of a plain attempt: a lease of one minute, no open presentation, not forced. */
export function leaseRequest(attempt: string, other: Partial<BeginRefreshRequest> = {}): BeginRefreshRequest {
  return { gen: 1, attempt, leaseMs: 60_000, openMs: 0, livesMs: 0, forcedWindowMs: 0, ...other }
}
