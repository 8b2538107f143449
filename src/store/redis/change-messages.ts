import { randomUUID } from 'node:crypto'
import { Cluster, type Redis } from 'ioredis'
import type { RecordKey, StoreHealth } from '../store.ts'
import { addressOf, createClusterMasters } from './cluster-masters.ts'
import { inTime } from './commands.ts'
import type { RedisConnections } from './connection.ts'
import type { CommandHealth } from './health.ts'

export const BEAT_EVERY_MS = 350
/** A heartbeat proves messages for this long after it was sent: a replica that is cut off stops within a second. */
export const TRUSTED_FOR_MS = 900
/** A subscriber without any proof for this long reconnects. */
export const RECONNECT_AFTER_MS = 3_000
const NEVER = Number.NEGATIVE_INFINITY

interface ChangeMessagesOptions {
  prefix: string
  connections: RedisConnections
  health: Pick<CommandHealth, 'succeeded' | 'failed'>
  onError: (error: Error) => void
  onNotSubscribed: (error: Error) => void
}

interface ChangeMessages extends Pick<StoreHealth, 'isLive' | 'onLive'> {
  readonly channel: string
  /** Calls the listeners of this process at once, as the message will call those of all. */
  announceHere(key: RecordKey): void
  onChange(listener: (key: RecordKey) => void): void
  close(): void
}

/** A subscription at one server. All times are monotonic. */
interface Subscription {
  readonly subscriber: Redis
  /** Infinity while it is not subscribed. */
  subscribedAt: number
  /** When the newest heartbeat was sent that has proven this connection. */
  provenAt: number
  /** When this connection was made or last replaced. */
  since: number
}

/**
 * Change messages of all replicas, from the one server or from every master of a Cluster: a master delivers what
 * is published on it to its own subscribers without the cluster bus. They count as live only while
 * heartbeats through every one of these servers come back.
 */
export function createChangeMessages({
  prefix,
  connections,
  health,
  onError,
  onNotSubscribed,
}: ChangeMessagesOptions): ChangeMessages {
  const { commands } = connections
  const channel = `${prefix}changed`
  const beatChannel = `${prefix}beat:${randomUUID()}`
  const masters = commands instanceof Cluster ? createClusterMasters(commands, connections.seeds) : null
  /** By the address of the server. */
  const subscriptions = new Map<string, Subscription>()
  const changeListeners: ((key: RecordKey) => void)[] = []
  const liveListeners: ((live: boolean) => void)[] = []
  let commandsLostAt = NEVER
  /** Of the subscription that was proven least recently. */
  let provenAt = NEVER
  /** The newest `provenAt` so far; a loss does not reset it. */
  let lastProofAt = NEVER
  let live = false

  commands.on('close', () => {
    // They may come back on another server than the one that the subscriber is connected to.
    commandsLostAt = performance.now()
    lose()
  })
  // The subscriber may have been ready first, and its heartbeat found no connection.
  commands.on('ready', () => {
    for (const [address, subscription] of subscriptions) sendBeat(address, subscription)
  })
  if (masters === null) open('')
  else followMasters()
  commands.on('refresh', followMasters)
  // Later commands to this master use another connection, which may lead to another server.
  commands.on('-node', (node: Redis) => reconnect(subscriptions.get(addressOf(node))))

  const timer = setInterval(beat, BEAT_EVERY_MS)
  timer.unref()

  /** `address`: `host:port` of a master of a Cluster, '' for the one server. */
  function open(address: string): void {
    const at = address.lastIndexOf(':')
    const subscriber = connections.openSubscriber(
      address === '' ? undefined : { host: address.slice(0, at), port: Number(address.slice(at + 1)) },
    )
    const subscription = { subscriber, subscribedAt: Infinity, provenAt: NEVER, since: performance.now() }
    subscriptions.set(address, subscription)
    lose()
    subscriber.on('error', onError)
    subscriber.on('ready', () => subscribe(address, subscription))
    subscriber.on('message', (from: string, payload: string) => {
      if (from === channel) announceHere(payload)
      else if (from === beatChannel) receiveBeat(subscription, Number(payload))
    })
    subscriber.on('close', () => {
      subscription.subscribedAt = Infinity
      subscription.provenAt = NEVER
      if (subscriptions.get(address) === subscription) lose()
    })
  }

  function receiveBeat(subscription: Subscription, sentAt: number): void {
    // A heartbeat from before the commands' connection broke proves nothing about the present connection. One from
    // the future is forged.
    if (sentAt > commandsLostAt && sentAt <= performance.now()) prove(subscription, sentAt)
  }

  function subscribe(address: string, subscription: Subscription): void {
    subscription.since = performance.now()
    const channels = masters === null ? [channel, beatChannel] : [channel]
    subscription.subscriber.subscribe(...channels).then(
      () => {
        subscription.subscribedAt = performance.now()
        sendBeat(address, subscription)
      },
      // No heartbeat comes back, so the subscriber reconnects.
      onNotSubscribed,
    )
  }

  function beat(): void {
    followMasters()
    // A process that was stopped may not have read the heartbeats of the meantime yet.
    if (!isLive()) setImmediate(loseIfSilent)
    for (const [address, subscription] of subscriptions) {
      const silentMs = performance.now() - Math.max(subscription.provenAt, subscription.since)
      if (silentMs > RECONNECT_AFTER_MS) reconnect(subscription)
      sendBeat(address, subscription)
    }
  }

  function failed(error: unknown): void {
    health.failed(error)
  }

  function sendBeat(address: string, subscription: Subscription): void {
    const sentAt = performance.now()
    if (masters === null) {
      inTime(commands.publish(beatChannel, String(sentAt))).then(health.succeeded, failed)
      return
    }
    // A reply comes after all messages that were published before it. The master is asked over the commands'
    // connection even while its subscriber is disconnected: that is how a new master becomes known.
    const master = masters.ask(address).then(health.succeeded)
    master.catch(failed)
    const delivery = inTime(subscription.subscriber.ping())
    Promise.all([delivery, master]).then(
      () => prove(subscription, sentAt),
      () => {},
    )
  }

  function prove(subscription: Subscription, sentAt: number): void {
    if (sentAt < subscription.subscribedAt) return
    subscription.provenAt = Math.max(subscription.provenAt, sentAt)
    followMasters()
    if (Number.isFinite(provenAt)) lastProofAt = Math.max(lastProofAt, provenAt)
    if (!live && performance.now() - provenAt < TRUSTED_FOR_MS) becomeLive()
  }

  /** Subscribes at each new master, and leaves nodes that are no longer masters. */
  function followMasters(): void {
    if (masters !== null) {
      const known = masters.known(TRUSTED_FOR_MS)
      for (const address of known) if (!subscriptions.has(address)) open(address)
      for (const [address, { subscriber }] of subscriptions) {
        if (known.has(address)) continue
        subscriptions.delete(address)
        masters.forget(address)
        connections.closeSubscriber(subscriber)
      }
    }
    provenAt = subscriptions.size === 0 ? NEVER : Infinity
    for (const subscription of subscriptions.values()) provenAt = Math.min(provenAt, subscription.provenAt)
  }

  function reconnect(subscription: Subscription | undefined): void {
    if (subscription?.subscriber.status !== 'ready') return
    subscription.provenAt = NEVER
    subscription.subscribedAt = Infinity
    subscription.since = performance.now()
    lose()
    subscription.subscriber.disconnect(true)
  }

  function announceHere(key: RecordKey): void {
    for (const listener of changeListeners) listener(key)
  }

  function loseIfSilent(): void {
    if (!isLive()) lose()
  }

  function lose(): void {
    provenAt = NEVER
    if (!live) return
    live = false
    for (const listener of liveListeners) listener(false)
  }

  function becomeLive(): void {
    live = true
    for (const listener of liveListeners) listener(true)
  }

  function isLive(): boolean {
    return live && performance.now() - provenAt < TRUSTED_FOR_MS
  }

  return {
    channel,
    isLive,
    announceHere,
    onChange: (listener) => void changeListeners.push(listener),
    onLive: (listener) => void liveListeners.push(listener),
    close: () => clearInterval(timer),
  }
}
