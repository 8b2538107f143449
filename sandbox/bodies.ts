import type { FastifyInstance } from 'fastify'

/** Accepts every body as it is, so that each endpoint can respond with its own error format. */
export function keepBodies(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
}

/** The bytes of a body that such a scope has read; empty if there was none. */
export function bytesOf(body: unknown): Buffer {
  return Buffer.isBuffer(body) ? body : Buffer.alloc(0)
}

/** The same as text. */
export function textOf(body: unknown): string {
  return bytesOf(body).toString()
}
