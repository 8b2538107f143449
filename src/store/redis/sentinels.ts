import { connect as connectTcp } from 'node:net'
import { connect as connectTls, type ConnectionOptions as TlsOptions } from 'node:tls'
import { AbstractConnector, Redis, type RedisOptions } from 'ioredis'
import type { RedisAddress } from '../../config/redis-url.ts'
import { messageOf } from '../../log.ts'
import { inTime } from './command-timeout.ts'

/**
 * A connector that handles every error of its socket. ioredis handles one (redis/ioredis#962). A TLS handshake that is
 * broken off emits two, and the second would end the process: also on the short connections that a Cluster's client opens
 * by itself.
 */
export abstract class ErrorHandlingConnector extends AbstractConnector {
  /** Opens the socket; `tls` is null without TLS. */
  protected open(address: RedisAddress & { family?: number | undefined }, tls: TlsOptions | null) {
    const stream = tls === null ? connectTcp(address) : connectTls({ ...address, ...tls } as TlsOptions)
    stream.on('error', (error) => {
      this.firstError = error
    })
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

interface Waiting {
  resolve(master: RedisAddress): void
  reject(error: Error): void
  report(error: Error): void
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
  const sentinels = new Map<string, Sentinel>()
  const connectors = new Set<MasterConnector>()
  const waiting = new Set<Waiting>()
  let master: NamedMaster | null = null
  let rounds = 0

  class MasterConnector extends ErrorHandlingConnector {
    #target: RedisAddress | null = null
    #waiting: Waiting | null = null

    constructor() {
      super(disconnectTimeoutMs)
      connectors.add(this)
    }

    async connect(report: (type: string, error: Error) => void) {
      this.connecting = true
      this.#target = null
      const { host, port } = await this.#nextMaster((error) => report('error', error))
      this.#target = { host, port }
      return this.open({ host, port }, masterTls)
    }

    #nextMaster(report: (error: Error) => void): Promise<RedisAddress> {
      if (master !== null && namedMasters().length > 0) return Promise.resolve(master)
      return new Promise((resolve, reject) => {
        this.#waiting = { resolve, reject, report }
        waiting.add(this.#waiting)
      })
    }

    override check({ role }: { role?: string }): boolean {
      return role === undefined || role === 'master'
    }

    override disconnect(): void {
      if (this.#waiting !== null && waiting.delete(this.#waiting)) {
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
    client.on('error', (error: Error) => fail(sentinel, error))
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
      chooseMaster()
    } catch (error) {
      sentinel.namedMaster = null
      fail(sentinel, error as Error)
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

  function namedMasters(): NamedMaster[] {
    return [...sentinels.values()].flatMap(({ namedMaster }) => namedMaster ?? [])
  }

  /**
   * The highest epoch wins: a Sentinel that was cut off names the old master. An epoch below the known one
   * counts only if most Sentinels reply and none knows a higher one: then they have been set up again.
   */
  function chooseMaster(): void {
    const named = namedMasters()
    const newest = named.reduce((best, one) => (one.epoch > best.epoch ? one : best))
    if (master !== null && newest.epoch < master.epoch && named.length <= sentinels.size / 2) return
    // Sentinels may name several addresses in one epoch for a moment: stay while any of them names the present one.
    const stays = named.some(
      ({ epoch, host, port }) => epoch === newest.epoch && host === master?.host && port === master.port,
    )
    master = stays ? { ...master!, epoch: newest.epoch } : newest
    for (const connector of connectors) connector.leaveUnless(master)
    for (const { resolve } of waiting) resolve(master)
    waiting.clear()
  }

  function fail(sentinel: Sentinel, error: Error & { code?: string }): void {
    sentinel.failure = messageOf(error) || (error.code ?? 'no reply')
    const all = [...sentinels.values()]
    if (all.some(({ namedMaster, failure }) => namedMaster !== null || failure === '')) return
    // Always the failure of the first Sentinel: each reason is logged once.
    for (const { report } of waiting) report(new Error(`no Sentinel can be reached: ${all[0]!.failure}`))
  }

  return {
    Connector: MasterConnector,
    close() {
      clearInterval(timer)
      for (const { client } of sentinels.values()) client.disconnect()
    },
  }
}

/** Sentinel's lists of names and values in turn. */
function toFields(list: string[]): Record<string, string | undefined> {
  const fields: Record<string, string | undefined> = {}
  for (let at = 0; at < list.length; at += 2) fields[list[at]!] = list[at + 1]!
  return fields
}
