import { connect as connectTcp, isIP } from 'node:net'
import { connect as connectTls, type ConnectionOptions as TlsOptions } from 'node:tls'
import { AbstractConnector, Redis, type RedisOptions } from 'ioredis'
import type { RedisAddress } from '../../../config/redis-url.ts'
import { messageOf } from '../../../log-text.ts'
import { inTime } from './command-timeout.ts'

/** How long each address of a name is tried at most. Node ends all attempts but the last one sooner (process/addresses.ts). */
export const CONNECT_TIMEOUT_MS = 2_000

/**
 * A connector whose time to connect begins again with each address, and that handles every error of its socket. ioredis
 * handles one error (redis/ioredis#962). A TLS handshake that is broken off emits two, and the second would end the
 * process: also on the short connections that a Cluster's client opens by itself.
 */
export abstract class ErrorHandlingConnector extends AbstractConnector {
  /** Opens the socket; `tls` is null without TLS. */
  protected open(address: RedisAddress & { family?: number | undefined }, tls: TlsOptions | null) {
    // Node sends no name by itself (RFC 6066 section 3). Routers pick the server by it; an address is none.
    const name = isIP(address.host) === 0 ? { servername: address.host } : {}
    const stream =
      tls === null ? connectTcp(address) : connectTls({ ...address, ...name, ...tls } as TlsOptions)
    stream.on('error', (error) => {
      this.firstError = error
    })
    // The limit of ioredis is that of the socket, for all addresses together.
    stream.on('connectionAttempt', () => stream.setTimeout(CONNECT_TIMEOUT_MS))
    this.stream = stream
    return stream
  }
}

/** A promotion is followed within four seconds although its announcement was lost. */
const ASK_EVERY_MS = 2_000
/** One in this many rounds looks for Sentinels that the configuration does not name. */
const DISCOVER_EVERY = 3
const SWITCH_CHANNEL = '+switch-master'

interface SentinelsOptions {
  addresses: readonly RedisAddress[]
  masterName: string
  /** Options of a connection to a Sentinel: credentials, TLS, timeouts. */
  connection: Omit<RedisOptions, 'replyMapping'>
  /** Options of TLS to the master; null without TLS. */
  masterTls: TlsOptions | null
  disconnectTimeoutMs: number
  /** Called with each connection to a Sentinel before it is used. */
  watch: (client: Redis) => void
}

/** The Sentinels of one master. */
export interface Sentinels {
  /** For the option `Connector` of an ioredis client: connects to the current master and leaves it when another is promoted. */
  readonly Connector: NonNullable<RedisOptions['Connector']>
  close(): void
}

/** A master as one Sentinel names it. */
interface NamedMaster extends RedisAddress {
  /** Rises with each failover. */
  readonly epoch: number
}

interface Sentinel {
  readonly client: Redis
  /** null while it does not reply. */
  namedMaster: NamedMaster | null
  /** Why the last question had no reply; '' before the first one. */
  failure: string
}

/** A connection that waits until a Sentinel names a master. */
interface Waiting {
  resolve(master: RedisAddress): void
  reject(error: Error): void
  report(error: Error): void
}

/** What the Sentinels of one master have named, and the connections that follow it. */
interface Group {
  /** By `host:port`. */
  readonly sentinels: Map<string, Sentinel>
  /** The newest that was named; null before the first one. */
  master: NamedMaster | null
  readonly connectors: Set<{ leaveUnless(master: RedisAddress): void }>
  readonly waiting: Set<Waiting>
}

/**
 * Follows the master that the Sentinels name: asks each of them every two seconds, and at once when one announces
 * a promotion. A connection to any other server is cut: a superseded master that thaws still calls itself a master.
 * While no Sentinel replies, the connection stays. The connector of ioredis leaves a master whose connection hangs only at
 * one announcement, which can be lost (redis/ioredis#1314).
 */
export function watchSentinels({
  addresses,
  masterName,
  connection,
  masterTls,
  disconnectTimeoutMs,
  watch,
}: SentinelsOptions): Sentinels {
  const group: Group = { sentinels: new Map(), master: null, connectors: new Set(), waiting: new Set() }
  const { sentinels } = group
  let rounds = 0

  for (const address of addresses) open(address, true)
  const timer = setInterval(() => {
    rounds += 1
    for (const sentinel of sentinels.values()) {
      void ask(sentinel)
      if (rounds % DISCOVER_EVERY === 0) void discover(sentinel)
    }
  }, ASK_EVERY_MS).unref()

  function open(address: RedisAddress, configured: boolean): void {
    const name = `${address.host}:${address.port}`
    if (sentinels.has(name)) return
    const client = new Redis({
      ...connection,
      ...address,
      enableReadyCheck: false,
      ...(configured ? {} : { retryStrategy: () => null }),
    })
    const sentinel: Sentinel = { client, namedMaster: null, failure: '' }
    sentinels.set(name, sentinel)
    watch(client)
    client.on('error', (error: Error) => noteFailure(group, sentinel, error))
    client.on('ready', () => {
      void ask(sentinel)
      void discover(sentinel)
      void subscribe(client)
    })
    client.on('close', () => {
      sentinel.namedMaster = null
    })
    client.on('end', () => sentinels.delete(name))
    client.on('message', (_channel, text: string) => {
      if (text.split(' ')[0] === masterName) void ask(sentinel)
    })
  }

  async function subscribe(client: Redis): Promise<void> {
    try {
      // Before RESP3 a subscribed connection cannot send commands: then only the polling detects a promotion.
      await client.call('HELLO', '3')
      await client.subscribe(SWITCH_CHANNEL)
    } catch {
      // The next connection tries again.
    }
  }

  async function ask(sentinel: Sentinel): Promise<void> {
    const { client } = sentinel
    if (client.status !== 'ready') return
    try {
      const [fields, address] = await inTime(
        Promise.all([
          client.call('SENTINEL', 'MASTER', masterName) as Promise<string[]>,
          client.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', masterName) as Promise<[string, string] | null>,
        ]),
      )
      if (address === null) throw new Error(`the Sentinel has no address of ${masterName}`)
      const epoch = Number(toFields(fields)['config-epoch'] ?? 0)
      // If the connection was lost meanwhile, what its Sentinel named no longer counts.
      if (client.status !== 'ready') return
      sentinel.namedMaster = { host: address[0], port: Number(address[1]), epoch }
      sentinel.failure = ''
      chooseMaster(group)
    } catch (error) {
      sentinel.namedMaster = null
      noteFailure(group, sentinel, error as Error)
    }
  }

  async function discover({ client }: Sentinel): Promise<void> {
    if (client.status !== 'ready') return
    try {
      const others = (await inTime(client.call('SENTINEL', 'SENTINELS', masterName))) as string[][]
      for (const { ip, port, flags = '' } of others.map(toFields)) {
        if (ip && port && !flags.includes('disconnected')) open({ host: ip, port: Number(port) }, false)
      }
    } catch {
      // The configured Sentinels are enough.
    }
  }

  return {
    Connector: masterConnector(group, masterTls, disconnectTimeoutMs),
    close() {
      clearInterval(timer)
      for (const { client } of sentinels.values()) client.disconnect()
    },
  }
}

/** Connects one ioredis client to the master of a group, and leaves it when another is promoted. */
function masterConnector(group: Group, tls: TlsOptions | null, disconnectTimeoutMs: number) {
  return class extends ErrorHandlingConnector {
    #target: RedisAddress | null = null
    #waiting: Waiting | null = null

    constructor() {
      super(disconnectTimeoutMs)
      group.connectors.add(this)
    }

    async connect(report: (type: string, error: Error) => void) {
      this.connecting = true
      this.#target = null
      const { host, port } = await this.#nextMaster((error) => report('error', error))
      this.#target = { host, port }
      return this.open({ host, port }, tls)
    }

    #nextMaster(report: (error: Error) => void): Promise<RedisAddress> {
      if (group.master !== null && namedMasters(group).length > 0) return Promise.resolve(group.master)
      return new Promise((resolve, reject) => {
        this.#waiting = { resolve, reject, report }
        group.waiting.add(this.#waiting)
      })
    }

    override check({ role }: { role?: string }): boolean {
      return role === undefined || role === 'master'
    }

    override disconnect(): void {
      if (this.#waiting !== null && group.waiting.delete(this.#waiting)) {
        this.#waiting.reject(new Error('Connection is closed.'))
      }
      super.disconnect()
    }

    /** Drops the connection if it leads elsewhere. `disconnect` would end a client for good that is connecting. */
    leaveUnless({ host, port }: RedisAddress): void {
      if (this.#target === null || (this.#target.host === host && this.#target.port === port)) return
      this.#target = null
      this.stream.destroy(new Error('another master was promoted'))
    }
  }
}

function namedMasters({ sentinels }: Group): NamedMaster[] {
  return [...sentinels.values()].flatMap(({ namedMaster }) => namedMaster ?? [])
}

/**
 * The highest epoch wins: a Sentinel that was cut off names the old master. An epoch below the known one
 * counts only if most Sentinels reply and none knows a higher one: then they have been set up again.
 */
function chooseMaster(group: Group): void {
  const { sentinels, master: before, connectors, waiting } = group
  const named = namedMasters(group)
  const newest = named.reduce((best, one) => (one.epoch > best.epoch ? one : best))
  if (before !== null && newest.epoch < before.epoch && named.length <= sentinels.size / 2) return
  // Sentinels may name several addresses in one epoch for a moment: stay while any of them names the present one.
  const stays = named.some(
    ({ epoch, host, port }) => epoch === newest.epoch && host === before?.host && port === before.port,
  )
  group.master = stays ? { ...before!, epoch: newest.epoch } : newest
  for (const connector of connectors) connector.leaveUnless(group.master)
  for (const { resolve } of waiting) resolve(group.master)
  waiting.clear()
}

function noteFailure(group: Group, sentinel: Sentinel, error: Error & { code?: string }): void {
  sentinel.failure = messageOf(error) || (error.code ?? 'no reply')
  const all = [...group.sentinels.values()]
  if (all.some(({ namedMaster, failure }) => namedMaster !== null || failure === '')) return
  // Always the failure of the first Sentinel: each reason is logged once.
  for (const { report } of group.waiting) report(new Error(`no Sentinel can be reached: ${all[0]!.failure}`))
}

/** Sentinel's lists of names and values in turn. */
function toFields(list: string[]): Record<string, string | undefined> {
  const fields: Record<string, string | undefined> = {}
  for (let at = 0; at < list.length; at += 2) fields[list[at]!] = list[at + 1]!
  return fields
}
