import type { IncomingMessage } from 'node:http'
import { PassThrough, type Readable } from 'node:stream'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { UploadRules } from '../config/operation.ts'
import { either, problem } from '../errors.ts'
import { permitLongBody } from '../http/connections.ts'
import { Patience } from './patience.ts'

/** A browser that sends less of an upload in the time of a slow reader would occupy a connection for hours. */
const LEAST_BYTES = 64 * 1024

/** Throws unless the headers announce an upload of these types, as long as permitted. To call before the body is read. */
export function requireUpload({ headers }: FastifyRequest, { types, limitBytes }: UploadRules): void {
  const { 'content-encoding': encoding = 'identity', 'content-type': type = '' } = headers
  const essence = type.split(';', 1)[0]!.trim().toLowerCase()
  if (!types.includes(essence) || encoding !== 'identity') {
    const detail = `The body must be ${either(types)}, without a content coding.`
    throw problem('unsupported_media_type', detail)
  }
  const { 'content-length': length } = headers
  if (length === undefined) throw problem('length_required', 'An upload needs Content-Length.')
  if (Number(length) > limitBytes)
    throw problem('payload_too_large', `The body may have ${limitBytes} bytes.`)
}

/** Routes of `scope` leave the body unread, whatever its type. */
export function leaveBodies(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', (_request, _body, done) => done(null))
}

/**
 * The body of a request as it comes, for one call. Whoever reads it may destroy it: the browser's connection stays.
 * `onStalled` is called once for a browser that sends less than 64 KiB in `patienceMs` although more is wanted.
 */
export function uploadOf(request: IncomingMessage, patienceMs: number, onStalled: () => void): Readable {
  permitLongBody(request)
  const body = new PassThrough()
  let bytes = 0
  const count = (chunk: Buffer): void => {
    bytes += chunk.length
  }
  const patience = new Patience(patienceMs, () => {
    if (bytes < LEAST_BYTES && !body.writableNeedDrain) {
      stop()
      onStalled()
      return
    }
    bytes = 0
    patience.renew()
    patience.run()
  })
  const stop = (): void => {
    patience.pause()
    request.off('data', count)
  }
  patience.run()
  request.on('data', count)
  request.once('end', stop)
  body.once('close', stop)
  request.pipe(body)
  return body
}
