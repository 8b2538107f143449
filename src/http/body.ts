import { isUtf8 } from 'node:buffer'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'

const MAX_TYPE_LENGTH = 100
const JSON_TYPE = /^application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i

/** Throws unless the body says that it is JSON, plain and in UTF-8; for before it is read. */
export function requireJson(request: FastifyRequest): void {
  const encoding = request.headers['content-encoding']
  const type = request.headers['content-type'] ?? ''
  // A long run of spaces would keep the pattern busy.
  if (type.length <= MAX_TYPE_LENGTH && JSON_TYPE.test(type) && (encoding ?? 'identity') === 'identity')
    return
  throw problem('unsupported_media_type')
}

/** Bodies of the routes of `scope` are read as JSON, and refused where they are not UTF-8. */
export function addJsonBodies(scope: FastifyInstance): void {
  const parseJson = scope.getDefaultJsonParser('error', 'error')
  scope.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    // RFC 8259 section 8.1. Decoded all the same, it would be changed on its way without a word.
    if (isUtf8(body)) return void parseJson(request, body.toString('utf8'), done)
    done(problem('invalid_request', 'The body is not valid UTF-8.'))
  })
}
