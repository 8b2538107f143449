import { randomUUID } from 'node:crypto'
import type { RecordKey } from './port.ts'
import type { RedisClient } from './redis-client.ts'

const BEAT_EVERY_MS = 700
/** Silence after which messages are no longer counted on. */
const TRUSTED_FOR_MS = 2_000

export interface MessagesOptions {
  prefix: string
  commands: RedisClient
  subscriber: RedisClient
}

export interface Messages {
  readonly channel: string
  arrive(): boolean
  onChange(listener: (key: RecordKey) => void): void
  onLost(listener: () => void): void
  close(): void
}

/**
 * Change messages of all replicas. They count as arriving only while a heartbeat, published through
 * the command connection, comes back to the subscriber: after a failover a subscriber can stay
 * connected to a master that nobody publishes to any more, and still answer a PING.
 */
export function createMessages({ prefix, commands, subscriber }: MessagesOptions): Messages {
  const channel = `${prefix}changed`
  const beatChannel = `${prefix}beat:${randomUUID()}`
  const changeListeners: ((key: RecordKey) => void)[] = []
  const lostListeners: (() => void)[] = []
  let lastBeatAt = 0
  let arriving = false

  subscriber.on('message', (from: string, payload: string) => {
    if (from === channel) for (const listener of changeListeners) listener(payload)
    else if (from === beatChannel && Date.now() - Number(payload) < TRUSTED_FOR_MS) {
      lastBeatAt = Date.now()
      arriving = true
    }
  })
  subscriber.on('close', lose)
  subscribe()

  const timer = setInterval(beat, BEAT_EVERY_MS)
  timer.unref()

  function subscribe(): void {
    // Resubscribing after a reconnect is the client's; only the first time may fail for good.
    subscriber.subscribe(channel, beatChannel).then(beat, () => {
      if (subscriber.status !== 'end') setTimeout(subscribe, BEAT_EVERY_MS).unref()
    })
  }

  function beat(): void {
    if (!arrive()) lose()
    // The time of sending is in the beat: one that waited somewhere proves nothing about now.
    commands.publish(beatChannel, String(Date.now())).catch(() => {})
  }

  function lose(): void {
    if (!arriving) return
    arriving = false
    for (const listener of lostListeners) listener()
  }

  function arrive(): boolean {
    return arriving && Date.now() - lastBeatAt < TRUSTED_FOR_MS
  }

  return {
    channel,
    arrive,
    onChange: (listener) => void changeListeners.push(listener),
    onLost: (listener) => void lostListeners.push(listener),
    close: () => clearInterval(timer),
  }
}
