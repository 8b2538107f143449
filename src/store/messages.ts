import { randomUUID } from 'node:crypto'
import type { Redis } from 'ioredis'
import { inTime } from './in-time.ts'
import type { RecordKey } from './port.ts'
import type { Reach } from './reach.ts'
import type { RedisClient } from './redis-client.ts'

const BEAT_EVERY_MS = 350
/** Silence after which messages are no longer counted on: with the store down nobody is served for a second. */
const TRUSTED_FOR_MS = 900
/** Silence after which the subscriber connects anew. */
const RENEWED_AFTER_MS = 3_000

export interface MessagesOptions {
  prefix: string
  commands: RedisClient
  subscriber: Redis
  reach: Reach
}

export interface Messages {
  readonly channel: string
  arrive(): boolean
  /** Tells the listeners of this process at once what the message will tell all. */
  tell(key: RecordKey): void
  onChange(listener: (key: RecordKey) => void): void
  onLost(listener: () => void): void
  onBack(listener: () => void): void
  close(): void
}

/**
 * Change messages of all replicas. They count as arriving only while a heartbeat, published through
 * the command connection, comes back to the subscriber: after a failover a subscriber can stay
 * connected to a master that nobody publishes to any more, and still answer a PING.
 */
export function createMessages({ prefix, commands, subscriber, reach }: MessagesOptions): Messages {
  const channel = `${prefix}changed`
  const beatChannel = `${prefix}beat:${randomUUID()}`
  const changeListeners: ((key: RecordKey) => void)[] = []
  const lostListeners: (() => void)[] = []
  const backListeners: (() => void)[] = []
  // Of the monotonic clock: the other one may be set back while nothing arrives.
  let lastBeatAt = 0
  let subscribedAt = 0
  let commandsLostAt = 0
  let arriving = false

  subscriber.on('message', (from: string, payload: string) => {
    if (from === channel) tell(payload)
    else if (from === beatChannel && provesArrival(Number(payload))) {
      lastBeatAt = performance.now()
      if (!arriving) recover()
    }
  })
  subscriber.on('close', lose)
  // They may come back on another master, where nothing says that the subscriber is there as well.
  commands.on('close', () => {
    commandsLostAt = performance.now()
    lose()
  })
  subscriber.on('ready', subscribe)

  const timer = setInterval(beat, BEAT_EVERY_MS)
  timer.unref()

  function subscribe(): void {
    subscribedAt = performance.now()
    // Where it fails no beat comes, and the connection is renewed.
    subscriber.subscribe(channel, beatChannel).then(sendBeat, () => {})
  }

  function beat(): void {
    // A process that was held up may have what came meanwhile still before it.
    if (!arrive()) setImmediate(loseIfSilent)
    const silentMs = performance.now() - Math.max(lastBeatAt, subscribedAt)
    if (subscriber.status === 'ready' && silentMs > RENEWED_AFTER_MS) subscriber.disconnect(true)
    sendBeat()
  }

  function sendBeat(): void {
    // The time of sending is in the beat: one that waited somewhere proves nothing about now.
    inTime(commands.publish(beatChannel, String(performance.now()))).then(reach.answered, reach.failed)
  }

  function tell(key: RecordKey): void {
    for (const listener of changeListeners) listener(key)
  }

  function loseIfSilent(): void {
    if (!arrive()) lose()
  }

  function provesArrival(sentAt: number): boolean {
    return sentAt > commandsLostAt && performance.now() - sentAt < TRUSTED_FOR_MS
  }

  function lose(): void {
    if (!arriving) return
    arriving = false
    for (const listener of lostListeners) listener()
  }

  function recover(): void {
    arriving = true
    for (const listener of backListeners) listener()
  }

  function arrive(): boolean {
    return arriving && performance.now() - lastBeatAt < TRUSTED_FOR_MS
  }

  return {
    channel,
    arrive,
    tell,
    onChange: (listener) => void changeListeners.push(listener),
    onLost: (listener) => void lostListeners.push(listener),
    onBack: (listener) => void backListeners.push(listener),
    close: () => clearInterval(timer),
  }
}
