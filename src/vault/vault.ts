import type { Logger } from '../log.ts'
import type { AuthorizationClient } from '../oauth/client.ts'
import type { Binding } from './binding.ts'
import type { Callers } from './caller.ts'
import { createEndSession, logEnded, type Sessions } from './lifecycle.ts'
import { createParts, type VaultOptions } from './parts.ts'
import { createRevoker, type Revoker } from './refresh/revoker.ts'
import type { Tokens } from './refresh/tokens.ts'
import type { OutboxStore } from './store/outbox.ts'
import type { DeviceStore, RecordKey, RecordStore } from './store/record.ts'
import { inLog, type NonceStore, type TryStore } from './store/store.ts'

// The words of the vault that other folders use. They import this file alone (test/repository/imports.test.ts).
export { DEVICE, DEVICE_REFRESHES, type DeviceRefresh, deviceProblem } from './binding.ts'
export { type Caller, type CallerSource, type Callers, waitProblem } from './caller.ts'
export type { NewSession } from './lifecycle.ts'
export type { VaultEvents, VaultOptions } from './parts.ts'
export { createGate } from './refresh/gate.ts'
export type { Refresh, RefreshResult, RefreshTrigger } from './refresh/refresh.ts'
export { neededAt, type RefreshTiming, type Wait } from './refresh/rules.ts'
export {
  END_REASONS,
  type EndReason,
  type Found,
  forClientId,
  type LiveSession,
  NO_COOKIE,
  notLiveProblem,
  openTokens,
  passedLimit,
  sealTokens,
} from './session.ts'
export { connectRedis, openStore } from './store/open.ts'
export type { WriteKind } from './store/outbox-entries.ts'
export { CLOCK_TOLERANCE_MS, type RecordKey, type SessionRecord } from './store/record.ts'
export type { StoreFinding } from './store/redis/deployment-findings.ts'
export { NO_WRITES } from './store/redis/health.ts'
export { inspectRedis } from './store/redis/inspect.ts'
export { inLog, LOG_DIGITS, type SessionStore, StoreUnavailable } from './store/store.ts'
export type { Identify, User } from './user.ts'

/**
 * Everything that this server knows of sessions and their tokens: the one object that the other folders use. A store
 * that fails is a rejection with `StoreUnavailable`. What it is made of, and what each part decides, is in docs/architecture.md.
 */
export interface Vault extends Callers, Pick<NonceStore, 'claimNonce'>, TryStore {
  /** Creates a provisional session, which lives for 15 s unless it is confirmed. */
  begin: Sessions['begin']
  confirm: RecordStore['confirm']
  abandon: Sessions['abandon']
  /** What a look at a session shows; ends it where it has passed a limit. `request`: the one that asks, for the log. */
  look: Sessions['look']
  /** The browser of this session is active now; false where there is none. Checks no limit: `look` first. */
  stay: Sessions['stay']
  end: Sessions['end']
  revoke: Revoker['revoke']
  /** null: sessions are not bound to devices. */
  devices: Devices | null
  /** The session that a `Cookie` header names by a good signature, as the log calls it. Waits for nothing. */
  sessionInLog(header: string | undefined): string | null
  /** Rejects while records cannot be read. A store that only refuses writes passes. */
  requireReads(): Promise<void>
  /** Rejects unless the store takes writes. */
  ping(): Promise<void>
  readonly gauges: Gauges
  /** Starts the background refreshes. */
  start: Tokens['start']
  beginStop: Tokens['beginStop']
  /** As `Tokens.stop`. The store stays open: its opener closes it. */
  stop: Tokens['stop']
}

/** The devices of bound sessions: what the server issues and accepts, and the records that keep it. */
export interface Devices extends Binding, DeviceStore {
  /** The key that a session has registered; null where there is no session, or none with a device. */
  registered(key: RecordKey): Promise<string | null>
}

/** What a process can say of its work now. */
export interface Gauges {
  /** Sessions with refreshed tokens that the store has not taken. */
  unsaved(): number
  /** Token requests that failed in a row. */
  consecutiveFailures(): number
  /** Sessions in the due queue; null when the store does not answer. */
  due(): Promise<number | null>
  takesWrites(): Promise<boolean>
}

const NO_RECORD = '0'.repeat(64)

/** Makes the vault over this store. Nothing runs in the background before `start`. */
export function createVault(options: VaultOptions): Vault {
  const { cookies } = options
  const { store, cache, binding, revoker, sessions, tokens, callers } = createParts(options)

  return {
    ...callers,
    begin: sessions.begin,
    confirm: store.confirm,
    abandon: sessions.abandon,
    look: sessions.look,
    stay: sessions.stay,
    end: sessions.end,
    revoke: revoker.revoke,
    devices: binding === null ? null : devicesOf(binding, store),
    claimNonce: store.claimNonce,
    countTry: store.countTry,
    sessionInLog(header) {
      const cookie = cookies.read(header)
      if (cookie === null) return null
      // The cache first: to verify a cookie again would cost more than to write the line of the log.
      const key = cache.keyOf(cookie) ?? cookies.verify(cookie)?.recordKey
      return key === undefined ? null : inLog(key)
    },
    requireReads: async () => void (await store.read(NO_RECORD)),
    ping: store.ping,
    gauges: {
      unsaved: store.pendingTokens,
      consecutiveFailures: tokens.consecutiveFailures,
      due: () => store.queueLength().catch(() => null),
      takesWrites: () =>
        store.ping().then(
          () => true,
          () => false,
        ),
    },
    start: tokens.start,
    beginStop: tokens.beginStop,
    stop: tokens.stop,
  }
}

function devicesOf(binding: Binding, { registerDevice, bindDevice, read }: OutboxStore): Devices {
  return {
    ...binding,
    registerDevice,
    bindDevice,
    registered: async (key) => (await read(key))?.device || null,
  }
}

/**
 * For the operator's commands: the end of sessions, without their life. `end` waits until a revocation may begin, and is
 * false where there was no session; `finish` waits for the last revocations, a minute at most. `audit`: the log of ends.
 */
export function createSessionEnd(
  options: Pick<VaultOptions, 'store' | 'keyring' | 'log'> & {
    authorizationClient: Pick<AuthorizationClient, 'revoke'>
    audit: Logger
    /** No known secret opens the tokens of this session, so they cannot be revoked. */
    onUnreadable: (key: RecordKey) => void
  },
): { end(key: RecordKey): Promise<boolean>; finish(): Promise<void> } {
  const { freeSlot, revoke, settled } = createRevoker(options)
  const end = createEndSession({ ...options, revoke, onEnded: (ended) => logEnded(options.audit, ended) })
  return {
    async end(key) {
      await freeSlot()
      return await end(key, 'operator')
    },
    finish: settled,
  }
}
