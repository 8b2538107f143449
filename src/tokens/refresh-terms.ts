import type { Clock } from '../clock.ts'
import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import type { LiveSession } from '../session/find.ts'
import type { TokenSet } from '../session/sealed-tokens.ts'
import type { RecordKey, SessionStore } from '../store/store.ts'
import type { Breaker } from './breaker.ts'
import type { WatchChanges } from './changes.ts'
import type { EndReason, TokenEvents } from './events.ts'
import type { Insist } from './insist.ts'
import type { RefreshTiming } from './refresh-policy.ts'
import type { Slots } from './slots.ts'
import type { Unsaved } from './unsaved.ts'

export type RefreshResult =
  | { kind: 'granted'; tokens: TokenSet; gen: number }
  /** Another attempt holds the lease, for `waitMs` unless it is renewed; it took it `ageMs` ago. */
  | { kind: 'busy'; waitMs: number; ageMs: number }
  /** The store may lack newer tokens: nobody refreshes for so long. */
  | { kind: 'paused'; waitMs: number }
  /** The record has changed since it was read, or new tokens wait for the store: read it again. */
  | { kind: 'changed' }
  | { kind: 'ended'; reason: EndReason | null }
  | { kind: 'later'; retryInMs: number; why: 'authorization_server' | 'store' }
  /** A forced refresh was made within the last minute. */
  | { kind: 'forced_before' }

export interface RefreshOptions {
  store: SessionStore
  authorizationServer: Pick<AuthorizationServer, 'refresh'>
  keyring: Keyring
  breaker: Breaker
  slots: Slots
  unsaved: Unsaved
  insist: Insist['insist']
  watchChanges: WatchChanges
  timing: RefreshTiming
  /** Time to the whole token answer. */
  timeoutMs: number
  clock: Clock
  random: () => number
  log: Logger
  events: TokenEvents
  /** Told of the tokens that the store has taken, as they are sealed. */
  onStored: (key: RecordKey, gen: number, sealed: string) => void
  onGranted: (key: RecordKey, tokens: TokenSet, limits: LiveSession['record']) => void
  onEnded: (key: RecordKey, reason: EndReason) => void
  /** Tokens that nobody will use: revoked where there is an endpoint for it. */
  drop: (tokens: TokenSet) => void
}
