import { isUtf8 } from 'node:buffer'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Problem, problem } from '../errors.ts'
import { jsonFaults } from '../json.ts'
import { closeSlowly } from './connections.ts'
import { NO_JSON } from './problems.ts'

const MAX_TYPE_LENGTH = 100
const JSON_TYPE = /^application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i

/** What fetch makes of an object as its body. */
const OBJECT_AS_TEXT = '[object Object]'

/** Throws 415 unless the headers announce plain JSON in UTF-8. To call before the body is read. */
export function requireJson({ headers }: FastifyRequest): void {
  const { 'content-encoding': encoding = 'identity', 'content-type': type = '' } = headers
  // A long run of blanks would keep the pattern busy.
  if (type.length <= MAX_TYPE_LENGTH && JSON_TYPE.test(type) && encoding === 'identity') return
  throw problem('unsupported_media_type', NO_JSON)
}

/**
 * The response to come is the last of its connection, which then ends slowly: a client that still sends the body sees
 * the response and no reset.
 */
export function leaveBodyUnread(request: FastifyRequest, reply: FastifyReply): void {
  closeSlowly(request.raw.socket)
  reply.header('connection', 'close')
}

/** A body up to this size is read and dropped, so that the connection can be used again. */
const MOST_DROPPED_BYTES = 64 * 1024

/** The response to come does not wait for the body, which is dropped. After a long one the connection ends, see above. */
export function dropBody(request: FastifyRequest, reply: FastifyReply): void {
  const { 'content-length': length = '0', 'transfer-encoding': coding, expect } = request.headers
  const isShort = Number(length) <= MOST_DROPPED_BYTES && coding === undefined && expect === undefined
  if (!isShort) leaveBodyUnread(request, reply)
}

/** Values inside each other in a body that is sent on. */
const MAX_DEPTH = 32

/** Throws unless a request comes without a body. To call before the body is read. */
export function requireNoBody({ headers }: FastifyRequest): void {
  const { 'content-length': length = '0', 'transfer-encoding': coding } = headers
  if (length === '0' && coding === undefined) return
  throw problem('invalid_request', 'This operation takes no body.')
}

/**
 * Routes of `scope` read bodies as JSON that can be written again without a change, and answer 400 to repeated members,
 * numbers that would change, and values inside each other 33 times and more.
 */
export function addExactJsonBodies(scope: FastifyInstance): void {
  scope.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body: Buffer, done) => {
    try {
      done(null, parseExact(body))
    } catch (error) {
      done(error as Error)
    }
  })
}

function parseExact(body: Buffer): unknown {
  if (!isUtf8(body)) throw problem('invalid_request', 'The body is not valid UTF-8.')
  const text = body.toString('utf8').replace(/^\ufeff/, '')
  if (text.trim() === '') throw problem('invalid_request', 'The body is empty.')
  if (text === OBJECT_AS_TEXT) throw objectAsText()
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw problem('invalid_request', 'The body is not valid JSON.')
  }
  for (const { kind, pointer } of jsonFaults(text, MAX_DEPTH))
    throw problem('invalid_request', `The member ${pointer.slice(1, MAX_NAME)} ${EXACT_FAULTS[kind]}.`)
  return value
}

const MAX_NAME = 128

const EXACT_FAULTS = {
  repeated: 'is there twice',
  reserved: 'is not known',
  inexact: 'is a number that cannot be passed on unchanged',
  deep: `is nested more than ${MAX_DEPTH} deep`,
} as const

function objectAsText(): Problem {
  return problem(
    'invalid_request',
    `The body is not valid JSON. It is ${OBJECT_AS_TEXT}: use JSON.stringify.`,
  )
}

/** Routes of `scope` read bodies as JSON, and answer 400 if a body is not UTF-8. */
export function addJsonBodies(scope: FastifyInstance): void {
  const parseJson = scope.getDefaultJsonParser('error', 'error')
  scope.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    // RFC 8259 section 8.1. Decoding would replace the invalid bytes silently.
    if (!isUtf8(body)) return done(problem('invalid_request', 'The body is not valid UTF-8.'))
    const text = body.toString('utf8')
    if (text === OBJECT_AS_TEXT) return done(objectAsText())
    void parseJson(request, text, done)
  })
}
