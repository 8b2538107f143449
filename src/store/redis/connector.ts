import { connect as connectTcp } from 'node:net'
import { connect as connectTls, type ConnectionOptions as TlsOptions } from 'node:tls'
import { AbstractConnector } from 'ioredis'
import type { RedisAddress } from '../../config/redis-url.ts'

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
