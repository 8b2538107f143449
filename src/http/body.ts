import { isUtf8 } from 'node:buffer'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'

const MAX_TYPE_LENGTH = 100
const JSON_TYPE = /^application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i

/** What fetch makes of an object as its body. */
const OBJECT_AS_TEXT = '[object Object]'

/** Throws 415 unless the headers announce plain JSON in UTF-8. To call before the body is read. */
export function requireJson({ headers }: FastifyRequest): void {
  const { 'content-encoding': encoding = 'identity', 'content-type': type = '' } = headers
  // A long run of blanks would keep the pattern busy.
  if (type.length <= MAX_TYPE_LENGTH && JSON_TYPE.test(type) && encoding === 'identity') return
  throw problem('unsupported_media_type')
}

/** Routes of `scope` read bodies as JSON, and answer 400 if a body is not UTF-8. */
export function addJsonBodies(scope: FastifyInstance): void {
  const parseJson = scope.getDefaultJsonParser('error', 'error')
  scope.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    // RFC 8259 section 8.1. Decoding would replace the invalid bytes silently.
    if (!isUtf8(body)) return done(problem('invalid_request', 'The body is not valid UTF-8.'))
    const text = body.toString('utf8')
    if (text === OBJECT_AS_TEXT)
      return done(
        problem(
          'invalid_request',
          `The body is not valid JSON. It is ${OBJECT_AS_TEXT}: use JSON.stringify.`,
        ),
      )
    void parseJson(request, text, done)
  })
}
